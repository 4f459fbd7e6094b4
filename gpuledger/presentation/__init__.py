"""How numbers, states and findings look and read, for every surface: pages, reports and messages. Pure; no I/O beyond our own files."""
