"""Benchmarks of the server on loopback, compared with a bare echo server and a2a-sdk alone."""
