"""Schedulers to read quotas from and, guarded, to write them to: one adapter a file."""
