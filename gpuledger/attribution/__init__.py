"""Who a pod belongs to: workload, queue, stage and tenant, by rules on names, labels and owners."""

from gpuledger.attribution.attribute import Attribution, Owner, Subject, attribute
from gpuledger.attribution.labels import Labels
from gpuledger.attribution.rules import Rule, Rules, load

__all__ = ["Attribution", "Labels", "Owner", "Rule", "Rules", "Subject", "attribute", "load"]
