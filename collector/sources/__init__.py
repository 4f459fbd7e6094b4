"""One source of readings a file."""
