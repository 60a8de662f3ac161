"""Benchmarks of the server on loopback, against a bare echo and the raw SDK."""
