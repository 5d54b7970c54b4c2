"""The user's inventory: read as Ansible reads it, all its mistakes at once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from labtool import spec
from labtool.components import Role
from labtool.errors import SpecError, UsageError
from labtool.remote import hosts

HA = """\
all:
  vars: {ansible_user: admin, ansible_ssh_private_key_file: ~/.ssh/lab}
  children:
    load_balancers: {hosts: {lb: {ansible_host: 10.0.0.5}}}
    masters:
      hosts:
        CP1.Example: {ansible_host: 10.0.0.11, node_address: 10.1.0.11}
        cp[2:3]: {ansible_port: 2222}
    workers: {hosts: {w1: {node_name: worker-one}}}
    other: {hosts: {bastion: {}}}
"""


def written(folder: Path, text: str) -> Path:
    """An inventory with this text."""
    path = folder / "hosts.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_groups_give_roles_and_variables_give_the_way(tmp_path: Path) -> None:
    """Ranges, group variables and hosts of other groups, as Ansible has them."""
    found = {h.machine: h for h in hosts.read(written(tmp_path, HA))}
    assert list(found) == ["lb", "CP1.Example", "cp2", "cp3", "w1"]
    assert found["CP1.Example"].role is Role.MASTER
    assert found["CP1.Example"].address == "10.1.0.11"
    assert dict(found["CP1.Example"].options) == {
        "HostName": "10.0.0.11",
        "User": "admin",
        "IdentityFile": "~/.ssh/lab",
    }
    assert dict(found["cp2"].options)["Port"] == "2222"
    assert found["w1"].name == "worker-one"
    assert hosts.word(found.values()) == "3-master-1-worker"


def test_ini_is_read_too(tmp_path: Path) -> None:
    """An ordinary inventory, in any form that Ansible takes."""
    text = "[masters]\nm1 ansible_host=10.0.0.1\n[etcd]\ne[1:3]\n"
    assert hosts.word(hosts.read(written(tmp_path, text))) == "1-master-3-etcd"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[workers]\nw1\n", "needs a group masters with at least one host"),
        ("[masters]\nm[1:3]\n", "3 masters need one host in load_balancers"),
        ("[masters]\nm[1:2]\n[load_balancers]\nlb\n", "2 etcd members need 2 for quorum"),
        ("[masters]\nm1\n[load_balancers]\nlb[1:2]\n", "2 hosts in load_balancers; a lab has one"),
        ("[masters]\nm1\n[workers]\nm1\n", "m1 is in masters and in workers"),
        ("[masters]\nm1 ansible_password=x\n", "ansible_password: a password would lie in files"),
        ("[masters]\nm1 ansible_become_pass=x\n", "sudo must work without a password"),
        ("[masters]\nm1 ansible_ssh_common_args='-v'\n", "'-v' isn't understood"),
        ("[masters]\nm1 ansible_host='{{ x }}'\n", "templates in connection variables"),
    ],
)
def test_each_mistake_is_said(tmp_path: Path, text: str, said: str) -> None:
    """In words, before any machine is asked."""
    with pytest.raises(SpecError) as raised:
        hosts.read(written(tmp_path, text))
    assert said in str(raised.value)


def test_a_missing_inventory_is_named(tmp_path: Path) -> None:
    """Ansible itself would go on with no host at all."""
    with pytest.raises(UsageError, match="there is no inventory"):
        hosts.read(tmp_path / "nothing.yml")


def test_a_topology_that_the_machines_do_not_make_is_refused(tmp_path: Path) -> None:
    """It may be left out, and then follows from the groups."""
    inventory = written(tmp_path, HA)
    over_ssh = {"provider": "ssh", "ssh": {"inventory": str(inventory)}}
    there = hosts.read(inventory)
    assert hosts.complete(spec.build(over_ssh), there).topology == "3-master-1-worker"
    with pytest.raises(UsageError, match="machines of a 3-master-1-worker, not of a 5-master"):
        hosts.complete(spec.build({**over_ssh, "topology": "5-master"}), there)


def test_openssh_reads_what_is_written(tmp_path: Path) -> None:
    """Jump hosts, keys with spaces in their path, the user's own configuration behind ours."""
    text = (
        "[masters]\nm1 ansible_host=10.0.0.1 ansible_user=me "
        "ansible_ssh_private_key_file='/a key' ansible_ssh_common_args='-J bastion'\n"
    )
    own = tmp_path / "user_config"
    own.write_text("Host m1\n  User other\nHost bastion\n  HostName 192.0.2.1\n", "utf-8")
    config = tmp_path / "ssh_config"
    known = tmp_path / "known hosts"
    text = hosts.ssh_config(hosts.read(written(tmp_path, text)), known, own)
    config.write_text(text, "utf-8")

    def resolved(name: str) -> dict[str, str]:
        argv = ["ssh", "-G", "-F", str(config), name]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return dict(line.partition(" ")[::2] for line in said.splitlines())

    found = resolved("m1")
    assert found["hostname"] == "10.0.0.1"
    assert found["user"] == "me"
    assert found["identityfile"] == "/a key"
    assert found["proxyjump"] == "bastion"
    assert found["stricthostkeychecking"] in {"true", "yes"}
    assert str(known) in found["userknownhostsfile"]
    assert resolved("bastion")["hostname"] == "192.0.2.1"
