"""What of the free GPUs can be used: the FGD index, what blocks each free share, and how large a gang still fits."""
