"""Volcano: queues with deserved, guarantee and capability, gangs as pod groups, hyper nodes."""

from schedulers.volcano.reader import Volcano

__all__ = ["Volcano"]
