"""Ports of network adapters (InfiniBand, RoCE, Omni-Path), as the kernel's files and node_exporter's page tell them."""
