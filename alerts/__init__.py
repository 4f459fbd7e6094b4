"""Messages for people and their systems: built from findings, delivered at least once, recognisable when repeated."""
