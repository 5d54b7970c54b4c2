"""One machine: lay what the store has, restart what doesn't reload, see the new one served.

A step can be cut off and done again at any moment: what has to be restarted is seen from
the machine itself (a process older than a file that it reads at its start alone), not
remembered.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509

from labtool import lab
from labtool.ansible import Playbook
from labtool.certs import leader
from labtool.certs.look import SERVED, Seen, ask, look
from labtool.components import Component, RunsAs
from labtool.errors import LabtoolError, WaitTimeoutError
from labtool.networks import in_url
from labtool.pki import Store
from labtool.providers import Provider
from labtool.topology import API_PORT, Node, Topology
from labtool.verify.job import ADMIN, command, web

READY_SECONDS = 120
# Files are watched, and read again every minute whatever the watch says
# (k8s.io/apiserver, pkg/server/dynamiccertificates).
RELOAD_SECONDS = 75
REACH_SECONDS = 30
# What a stopping component may take. An API server stops listening at once and answers what is
# under way, but would wait a minute for watches that nobody ends (k8s.io/apiserver,
# pkg/server/lifecycle_signals.go), and the load balancer cuts those within two seconds.
_STOP_SECONDS = {"kube-apiserver": 3}
_STOP_SECONDS_AT_MOST = 30
_POLL_SECONDS = 0.5
_CRI_STOP = """
of="--label io.kubernetes.pod.namespace=kube-system"
ids=$(crictl ps -q --name '^{name}$' $of)
# A kubelet that waits before it starts a failing pod again forgets that when it restarts.
[ -n "$ids" ] || systemctl restart kubelet
[ -z "$ids" ] || crictl stop -t {seconds} $ids >/dev/null
# The kubelet then starts it at once, where it would wait longer each time (doBackOff).
[ -z "$ids" ] || crictl rm $ids >/dev/null || true
"""


@dataclass(frozen=True, slots=True)
class Step:
    """What is done on each machine, and what it is done with.

    Attributes:
        playbook: which one lays the files: `certs` or `rotation`.
        patient: wait until all that was restarted serves again before the next machine; not
            where the lab doesn't serve anyway, since then each may need the next one first.
    """

    provider: Provider
    topology: Topology
    store: Store
    playbook: str
    patient: bool

    @property
    def state(self) -> Path:
        """The lab's state folder."""
        return lab.state(self.topology)


def bring_up_to_date(step: Step, node: Node, say: Callable[[str], None]) -> list[str]:
    """Have a machine hold and use what the store has for it.

    Args:
        step: with what.
        node: which.
        say: called with what is being done.

    Returns:
        The components that were restarted.

    Raises:
        AnsibleError: the files could not be laid.
        WaitTimeoutError: something didn't serve again, or not with the new certificate.
    """
    say("laying files")
    play = Playbook(step.playbook, step.state, limit=[node.machine]).start()
    play.follow(lambda _: None)
    seen = look(step.provider, step.store, step.topology, node)
    if seen.error:
        raise LabtoolError(f"{node.name} could not be asked", cause=seen.error)
    restarted = _restart(step, node, {*seen.stale, *seen.absent}, say)
    say("handshakes")
    _wait_served(step, node)
    if step.patient and node in step.topology.masters:
        reach_kubelet(step, node)
    return restarted


def reach_kubelet(step: Step, node: Node) -> None:
    """Have a master's API server talk to its kubelet, until it does.

    The first handshake with a new client certificate closes every connection that was made
    with the old one, and its own with them (client-go, transport/cert_rotation.go,
    loadClientCert). So somebody's first `kubectl logs` would fail; this takes its place.
    """
    url = f"https://{node.url_host}:{API_PORT}/api/v1/nodes/{node.name}/proxy/healthz"
    job = web(url, **ADMIN, until=200, seconds=REACH_SECONDS)
    answer = ask(step.provider, step.topology, node, {"reach": job})["reach"]
    if answer.get("status") != 200:  # noqa: PLR2004 - HTTP's OK
        raise WaitTimeoutError(
            f"the API server of {node.name} doesn't reach its kubelet",
            cause=str(answer.get("error") or answer.get("body")),
            next_step=f"labtool verify {step.topology.name} {node.name}",
        )


def restart_stale(step: Step, say: Callable[[str], None]) -> None:
    """Restart what still uses a file that was replaced, one machine after the other."""
    for node in step.topology.nodes:
        seen = look(step.provider, step.store, step.topology, node)
        say(node.name)
        _restart(step, node, set(seen.stale), say)


def _restart(step: Step, node: Node, names: set[str], say: Callable[[str], None]) -> list[str]:
    """Restart components: what others need first, alone; the rest together."""
    todo = [c for c in step.topology.components(node) if c.name in names]
    first = [c for c in todo if c.name in {"etcd", "kube-apiserver"}]
    # In the order in which they start: an API server without its etcd serves nobody.
    first.sort(key=lambda c: c.name)
    rest = [c for c in todo if c not in first]
    for group in [*([c] for c in first), rest]:
        if group:
            if step.patient and group[0].name == "etcd":
                say("moving etcd's leadership")
                leader.move_away(step.provider, step.topology, node)
            say(f"restarting {', '.join(c.name for c in group)}")
            _restart_together(step, node, group)
    if step.patient and "kube-apiserver" in names:
        say("the load balancer")
        wait_for_balancers(step, node)
    return [c.name for c in [*first, *rest]]


def _health(topology: Topology, node: Node, component: Component) -> str:
    """Where a component says that it is well; the table's loopback is the primary family's."""
    url = component.health.format(address=node.url_host)
    return url.replace("127.0.0.1", in_url(topology.loopback))


def _restart_together(step: Step, node: Node, components: Sequence[Component]) -> None:
    stops = [command(*_stop(c), timeout=2 * _STOP_SECONDS_AT_MOST) for c in components]
    waits = [
        web(_health(step.topology, node, c), until=200, seconds=READY_SECONDS)
        for c in components
        if step.patient and c.health.startswith("http")
    ]
    answer = ask(
        step.provider,
        step.topology,
        node,
        {"restart": {"kind": "steps", "steps": [*stops, *waits]}},
    )
    answers = answer["restart"]["answers"]
    late = [
        f"{wait['url']}: {said.get('error') or said.get('status')}"
        for wait, said in zip(waits, answers[len(stops) :], strict=True)
        if said.get("status") != 200  # noqa: PLR2004 - HTTP's OK
    ]
    if late:
        names = ", ".join(c.name for c in components)
        raise WaitTimeoutError(
            f"{names} on {node.name} did not serve within {READY_SECONDS} s of the restart",
            cause="\n".join(late),
            next_step=f"labtool logs {step.topology.name} {node.name} {components[0].name}",
        )


def _stop(component: Component) -> list[str]:
    """The command after which its keeper starts it again with the files that lie there now."""
    if component.runs_as is RunsAs.STATIC_POD:
        seconds = _STOP_SECONDS.get(component.name, _STOP_SECONDS_AT_MOST)
        return ["sh", "-c", _CRI_STOP.format(name=component.name, seconds=seconds)]
    # New processes take new connections; the old ones keep theirs (haproxy -Ws).
    verb = "reload-or-restart" if component.name == "haproxy" else "restart"
    return ["systemctl", verb, component.name]


def _wait_served(step: Step, node: Node) -> None:
    """Wait until each port shows the certificate that lies on the machine, by handshakes."""
    deadline = time.monotonic() + RELOAD_SECONDS
    while other := not_served(look(step.provider, step.store, step.topology, node)):
        if not step.patient and all(shown is None for _, shown in other.values()):
            return  # nothing answers there yet; the lab as a whole is waited for
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"{node.name} doesn't serve the certificates that lie there",
                cause="\n".join(f"port {p}: {path}" for p, (path, _) in other.items()),
                next_step=f"labtool certs show {step.topology.name}",
            )
        time.sleep(_POLL_SECONDS)


def not_served(seen: Seen) -> dict[int, tuple[str, x509.Certificate | None]]:
    """The ports that don't show the certificate in their file: that file, and what they show."""
    return {
        port: (path, seen.served[port])
        for port, path in SERVED.items()
        if port in seen.served and path in seen.files and seen.served[port] != seen.files[path][0]
    }


def _statistics(step: Step, balancer: Node) -> Any:
    url = f"http://{in_url(step.topology.loopback)}:8404/stats;csv"
    job = {"stats": web(url, limit=100_000)}
    return ask(step.provider, step.topology, balancer, job)["stats"]


def wait_for_balancers(step: Step, node: Node) -> None:
    """Wait until each load balancer sends requests to this master again."""
    deadline = time.monotonic() + READY_SECONDS
    for balancer in step.topology.balancers:
        while not _has_up(_statistics(step, balancer), node):
            if time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"{balancer.name} did not take {node.name} back within {READY_SECONDS} s",
                    next_step=f"labtool verify {step.topology.name} LB",
                )
            time.sleep(_POLL_SECONDS)


def _has_up(answer: dict[str, Any], node: Node) -> bool:
    """Whether haproxy's statistics call a master up."""
    table = csv.DictReader(io.StringIO(answer.get("body", "").removeprefix("# ")))
    rows = [r for r in table if (r["pxname"], r["svname"]) == ("masters", node.name)]
    return any(r["status"].startswith("UP") for r in rows)
