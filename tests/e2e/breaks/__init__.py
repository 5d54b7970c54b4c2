"""What is broken on a real lab, and what `labtool verify` has to say of it."""

from __future__ import annotations

from breaks import balancers, cluster, control_plane, files, kubelets, members, network, objects
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

__all__ = ["BATCHES", "MEMBERS", "PAIR", "WORKER", "Batch", "Break", "Step"]
