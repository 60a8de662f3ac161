"""The `apcore-a2a` command: `serve` and more for agents; `card`, `call`, `tasks` to call them."""
