"""Slurm: accounts, QOS, jobs, nodes and history, by its commands or by slurmrestd."""

from schedulers.slurm.reader import Slurm

__all__ = ["Slurm"]
