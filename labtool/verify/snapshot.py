"""One look at each node: which jobs the probe does there, and its answers.

Checks of one node read from here. The look is taken once, of all nodes at the same
time, when verify begins; what comes back is plain data, so that every check of this
kind can be tested without a node.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any, cast

from labtool.networks import in_url
from labtool.topology import Node, Topology
from labtool.verify import probe
from labtool.verify.connect import background, host_of
from labtool.verify.job import Jobs
from labtool.verify.jobs import jobs
from labtool.verify.model import CheckFailed

ANSWER_SECONDS = 40.0
_PROGRAM = Path(probe.__file__).read_text(encoding="utf-8")


def look(topology: Topology, node: Node, wanted: Jobs) -> dict[str, Any]:
    """Have the probe do these jobs on the node.

    Raises:
        CheckFailed: the node did not answer.
    """
    sent = time.time()
    line = shlex.join(["python3", "-c", _PROGRAM, json.dumps(wanted), str(topology.patience)])
    done = host_of(topology, node).run(line)
    if done.rc != 0:
        raise CheckFailed(
            f"{node.name} (machine {node.machine}) did not answer",
            tried="to run the probe with python3 on the node",
            got="\n".join(str(done.stderr).strip().splitlines()[-4:]),
            node=node.name,
        )
    answers = cast("dict[str, Any]", json.loads(str(done.stdout)))
    return {**answers, "sent": sent, "received": time.time()}


class Look:
    """A look under way; its deadline counts from its beginning, however many wait for it."""

    def __init__(self, topology: Topology, node: Node, wanted: Jobs) -> None:
        self._node = node
        self._seconds = ANSWER_SECONDS * topology.patience
        self._end = time.monotonic() + self._seconds
        self._future = background(look, topology, node, wanted)

    def answers(self) -> dict[str, Any]:
        """What the probe answered to each job.

        Raises:
            CheckFailed: the node did not answer, or not in time.
        """
        try:
            return self._future.result(timeout=max(self._end - time.monotonic(), 0))
        except TimeoutError as error:
            raise CheckFailed(
                f"{self._node.name} (machine {self._node.machine}) did not answer within "
                f"{self._seconds:.0f} s",
                tried="to run the probe with python3 on the node",
                node=self._node.name,
            ) from error


class NodeView:
    """A node and what was seen on it."""

    def __init__(
        self, topology: Topology, node: Node, answers: dict[str, Any] | None = None
    ) -> None:
        self.topology = topology
        self.node = node
        self.name = node.name
        self.address = node.address
        self.url_host = node.url_host
        self.loopback = in_url(topology.loopback)
        self._answers = answers
        self._look: Look | None = None

    def begin(self) -> Look:
        """Start the look, once."""
        if self._look is None:
            self._look = Look(self.topology, self.node, jobs(self.topology, self.node))
        return self._look

    def __getitem__(self, key: str) -> Any:
        """The probe's answer to one job; waits for the look where need be."""
        answers = self.begin().answers() if self._answers is None else self._answers
        answer = answers[key]
        if isinstance(answer, dict) and "failed" in answer:
            raise CheckFailed(
                f"the probe's job {key!r} failed on {self.name}", got=answer["failed"]
            )
        return answer

    def text(self, path: str) -> str:
        """What is in a file.

        Raises:
            CheckFailed: the node has no such file.
        """
        found = self["text"].get(path)
        if found is None:
            raise CheckFailed(f"{self.name} has no file {path}", tried=f"to read {path}")
        return str(found)

    def output(self, key: str) -> str:
        """What a command printed.

        Raises:
            CheckFailed: it ended with an error.
        """
        done = self[key]
        if done["code"] != 0:
            argv = jobs(self.topology, self.node)[key]["argv"]
            raise CheckFailed(
                f"{argv[0]} failed on {self.name} with exit code {done['code']}",
                tried=" ".join(argv),
                got=done["err"] or done["out"],
            )
        return str(done["out"])

    def json(self, key: str) -> Any:
        """What a command printed, as JSON."""
        return json.loads(self.output(key))


class Lab:
    """All machines of the lab, for checks that compare them."""

    def __init__(self, topology: Topology, nodes: dict[str, NodeView]) -> None:
        self.topology = topology
        self.nodes = nodes

    @property
    def masters(self) -> list[NodeView]:
        """The control-plane nodes."""
        return [self.nodes[n.name] for n in self.topology.masters]

    @property
    def etcd_members(self) -> list[NodeView]:
        """The machines that hold a member of etcd."""
        return [self.nodes[n.name] for n in self.topology.etcd_members]

    @property
    def cluster(self) -> list[NodeView]:
        """The Kubernetes nodes."""
        return [self.nodes[n.name] for n in self.topology.cluster_nodes]
