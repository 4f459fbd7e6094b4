"""AMD's management library through the Python module that comes with ROCm."""
