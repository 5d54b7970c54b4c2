"""What is broken on a real lab, and what `labtool verify` has to say of it."""

from __future__ import annotations

from breaks import (
    balancers,
    cluster,
    control_plane,
    families,
    files,
    kubelets,
    members,
    network,
    objects,
    versions,
)
from breaks.model import Batch, Break, Step

# Light ones first: what they touch is read by checks and by nothing that runs.
BATCHES: tuple[Batch, ...] = (
    files.BATCH,
    kubelets.FLAGS,
    network.PODS,
    network.SERVICES,
    control_plane.API_SERVER,
    control_plane.OPEN,
    control_plane.CUT_OFF,
    versions.APART,
    cluster.BALANCER,
    kubelets.STOPPED,
    objects.PODS,
    objects.WORKLOADS,
    cluster.NO_CONTROLLERS,
)

# What a lab without workers can't get wrong.
WORKER = files.WORKER
# What only a lab with nodes for etcd can get wrong.
MEMBERS = members.BATCH
# What only a lab with two load balancers can get wrong.
PAIR = balancers.BATCH

# What only a lab with two address families, or with IPv6 alone, can get wrong.
DUAL = (families.NETWORK, families.SERVICES, families.KERNEL)
ONLY_IPV6 = families.ONLY_IPV6

__all__ = ["BATCHES", "DUAL", "MEMBERS", "ONLY_IPV6", "PAIR", "WORKER", "Batch", "Break", "Step"]
