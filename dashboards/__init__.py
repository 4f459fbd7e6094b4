"""The pages. Each is a question, its answer and the evidence; every number comes from a named query."""
