"""The commands that call agents: `card`, `call` and `tasks`."""
