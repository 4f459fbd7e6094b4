"""gpuledger: every GPU-minute of a fleet is in exactly one state, and the states add up to the inventory."""

__version__ = "0.1.0"
