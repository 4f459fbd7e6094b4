"""NVML behind a process boundary: the calls, the child that makes them and the parent that waits with a deadline."""
