"""One recorded format a file: `read` yields (record name, Arrow table)."""
