"""Exporters described by a file: which metric fills which column, and which labels say whose reading it is."""
