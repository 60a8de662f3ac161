"""What the bindings do with HTTP: bodies, answers, streams of events."""
