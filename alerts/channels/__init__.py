"""One module a channel."""
