"""Benchmarks of the server on loopback, compared with a bare echo and the SDK alone."""
