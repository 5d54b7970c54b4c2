"""Every certificate of a lab, on its machines and in the state folder."""

from __future__ import annotations

from labtool import lab
from labtool.certs.look import Seen, certificates, inside, look_at_all
from labtool.certs.renew import HOST, all_leaves
from labtool.certs.rows import CA_FILES, Row, path_of, rows, trusted_on
from labtool.pki import Leaf, Store
from labtool.providers import Provider
from labtool.topology import Topology
from labtool.verify import probe


def show(topology: Topology, provider: Provider) -> tuple[list[Row], dict[str, str]]:
    """Look at all machines at once; change nothing.

    Returns:
        The rows, machine by machine; and why a machine could not be asked, by its name.
    """
    lab.require_keys(topology)
    store = Store(lab.state(topology) / "pki", topology.spec["pki"]["algorithm"])
    leaves = all_leaves(topology)
    seen = look_at_all(provider, store, topology)
    found = []
    for one in seen:
        wanted = {path_of(n, leaf): (n, leaf) for n, leaf in leaves.get(one.name, {}).items()}
        found += rows(one, wanted, trusted_on(one))
    found += _on_host(topology, store, leaves[HOST])
    return found, {one.name: one.error for one in seen if one.error}


def _on_host(topology: Topology, store: Store, leaves: dict[str, Leaf]) -> list[Row]:
    """The user's own kubeconfig in the state folder."""
    own = lab.kubeconfig(topology)
    if not own.exists():
        return []
    path = str(own)
    client, trusted = inside(probe.kubeconfigs({"paths": [path]})[path])
    cas = {name: certificates(store.authority(name).certificate.decode()) for name in CA_FILES}
    name, leaf = next(iter(leaves.items()))
    return rows(
        Seen(HOST, files={path: client}, trusted={path: trusted}), {path: (name, leaf)}, cas
    )
