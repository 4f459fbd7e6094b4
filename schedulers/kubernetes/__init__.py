"""Kubernetes: how its API is read as of one moment, and what nodes, pods, quotas and claims say."""
