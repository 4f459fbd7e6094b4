"""nvidia-smi as text: what its CSV says, for hosts that have nothing else."""
