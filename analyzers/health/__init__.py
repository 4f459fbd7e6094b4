"""Health: what faults mean, how often they come, what they cost, and how much of the time work made progress."""
