"""How numbers, states and findings look and read, for every surface. It computes nothing."""
