"""Airflow: pools whose slots stand for GPUs, and the tasks that hold slots or wait for them."""

from schedulers.airflow.reader import Airflow

__all__ = ["Airflow"]
