"""The application around the request path: options, card, health, processes."""
