"""KAI: queues with quota, limit and weight over quota, pod groups, and parts of cards."""

from schedulers.kai.reader import Kai

__all__ = ["Kai"]
