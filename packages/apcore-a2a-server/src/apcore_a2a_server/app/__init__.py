"""The ASGI application, and the process that serves it."""
