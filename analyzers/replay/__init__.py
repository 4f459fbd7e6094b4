"""A small deterministic placer: pods in, places out, under one policy; the core of a replay of history."""
