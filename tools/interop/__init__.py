"""Clients of other projects, which call an agent of this server: `tools/clients`."""
