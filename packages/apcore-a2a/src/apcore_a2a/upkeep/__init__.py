"""The commands for who keeps a store: bring it up to date, check it, drop what is old."""
