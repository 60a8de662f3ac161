"""Clients of other projects, which call an agent of this project: `tools/clients`."""
