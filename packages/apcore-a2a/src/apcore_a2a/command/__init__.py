"""The `apcore-a2a` command: `serve` for agents, `card`, `call` and `tasks` for clients, `store`."""
