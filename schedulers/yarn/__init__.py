"""YARN: the ResourceManager's queues, applications, containers and nodes, where GPUs are `yarn.io/gpu`."""

from schedulers.yarn.reader import Yarn

__all__ = ["Yarn"]
