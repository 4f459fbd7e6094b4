"""Wiring: the one place where adapters meet ports. CLI, HTTP service, jobs."""
