"""The `apcore-a2a` command: subcommands that run an agent, and subcommands that call agents."""
