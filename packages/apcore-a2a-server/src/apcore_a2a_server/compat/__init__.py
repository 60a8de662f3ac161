"""The official SDK's `RequestHandler` on top of this server.

Its import takes most of a second, so that nothing else of the server imports this.
"""

from .request_handler import SdkRequestHandler, request_handler

__all__ = ["SdkRequestHandler", "request_handler"]
