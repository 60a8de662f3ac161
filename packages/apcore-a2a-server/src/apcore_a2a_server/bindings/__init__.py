"""The protocol bindings: JSON-RPC, HTTP+JSON and gRPC, over the same operations."""
