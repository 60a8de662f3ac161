"""The task engine: what a request does to a task."""
