"""kube-state-metrics: pods that ask for GPUs, when they ran and whose they are, and what nodes offer."""
