"""A simulated fleet as a Kubernetes cluster: its script, written minute by minute into a fake kube-apiserver."""

from gpuledger.app.simulated_cluster.cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
