"""Servers of models: how their pages are read, whichever server it is."""

from collector.serving.metrics import Dialect, Metric, Shape
from collector.serving.page import Target, parse
from collector.serving.source import EngineSource

__all__ = ["Dialect", "EngineSource", "Metric", "Shape", "Target", "parse"]
