"""Edges in: sources of readings, the agent that reads and ships them, and importers of recorded files."""
