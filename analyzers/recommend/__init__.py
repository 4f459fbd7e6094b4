"""One recommender a file, and the arithmetic that it stands on."""
