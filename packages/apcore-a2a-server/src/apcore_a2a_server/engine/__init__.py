"""The task engine: admits messages, runs calls, and changes tasks."""
