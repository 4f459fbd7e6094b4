"""Storage: the DuckDB warehouse with its named queries, and the state store."""

from warehouse.ingest import IngestResult
from warehouse.store import Warehouse

__all__ = ["IngestResult", "Warehouse"]
