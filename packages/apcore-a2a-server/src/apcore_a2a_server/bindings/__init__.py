"""The protocol bindings: JSON-RPC and HTTP+JSON, over the same operations."""
