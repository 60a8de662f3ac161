"""Tasks that one process leaves and another goes on with."""
