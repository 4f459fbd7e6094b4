"""Kueue: who may hold how much, who borrows from whom, and what waits for its quota."""

from schedulers.kueue.adapter import Kueue, KueueOptions

__all__ = ["Kueue", "KueueOptions"]
