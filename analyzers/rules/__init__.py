"""One rule a file; each class's docstring is its user documentation."""
