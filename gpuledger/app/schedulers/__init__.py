"""Schedulers that the service reads: their list, the book of what changed, and the reading itself."""
