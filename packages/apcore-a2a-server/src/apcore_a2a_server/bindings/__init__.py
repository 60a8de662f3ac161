"""The protocol bindings: JSON-RPC and HTTP+JSON."""
