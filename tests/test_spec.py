"""What was asked for: every mistake at once, each with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtool import spec, versions
from labtool.errors import SpecError


@given(masters=st.sampled_from([1, 3, 5, 7]), workers=st.integers(1, 9))
def test_topology_words_mean_what_they_say(masters: int, workers: int) -> None:
    """Masters and workers are read from the word."""
    assert spec.parse_topology(f"{masters}-master") == (masters, 0, 0)
    assert spec.parse_topology(f"{masters}-master-{workers}-worker") == (masters, workers, 0)


@pytest.mark.parametrize(
    ("word", "counts"),
    [
        ("3-master-3-etcd", (3, 0, 3)),
        ("1-master-1-worker-3-etcd", (1, 1, 3)),
        ("3-master-5-etcd", (3, 0, 5)),
        ("1-master-1-etcd", (1, 0, 1)),
        ("2-master-3-etcd", (2, 0, 3)),
    ],
)
def test_etcd_may_have_nodes_of_its_own(word: str, counts: tuple[int, int, int]) -> None:
    """Masters may then be even: they have no quorum of their own."""
    asked = spec.build({"topology": word})
    assert spec.parse_topology(word) == counts
    assert (asked.masters, asked.workers, asked.etcd) == counts


def test_one_node_is_one_master() -> None:
    """`1-node` is a topology of its own name."""
    assert spec.parse_topology("1-node") == (1, 0, 0)
    assert spec.build({"topology": "1-node"}).lab_name == "1-node"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("2-master", "need 2 for quorum and so bear the loss of 0, just as 1 do"),
        ("4-master", "use 3 or 5"),
        ("0-master", "at least one master"),
        ("9-master", "at most 7 masters"),
        ("7-master-14-worker", "at most 20 nodes"),
        ("3-node", "use 3-master"),
        ("3-master-2-etcd", "2 etcd members need 2 for quorum and so bear the loss of 0"),
        ("1-master-4-etcd", "use 3 or 5"),
        ("3-master-9-etcd", "at most 7 masters and 7 members of etcd"),
        ("3-master-11-worker-7-etcd", "at most 20 nodes"),
        ("3-master-0-etcd", "leave -0-etcd out"),
        ("1-node-3-etcd", "use 1-master"),
        ("3-master-3-etcd-2-worker", "is no topology"),
        ("three", "is no topology"),
    ],
)
def test_a_wrong_topology_is_refused_with_the_reason(word: str, said: str) -> None:
    """The arithmetic of quorum included."""
    with pytest.raises(SpecError) as caught:
        spec.build({"topology": word})
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"lb": 0}, "lb: Input should be greater than or equal to 1"),
        ({"lb": 3}, "lb: Input should be less than or equal to 2"),
        ({"topology": "1-node", "lb": 2}, "a master that is lost takes the API with it"),
        ({"lb": "2", "api_port": 6443}, "can't share a port of this host"),
    ],
)
def test_two_load_balancers_at_most_and_only_where_they_help(
    values: dict[str, object], said: str
) -> None:
    """With the reason."""
    with pytest.raises(SpecError) as caught:
        spec.build(values)
    assert said in str(caught.value)


def test_all_mistakes_of_a_file_are_reported_with_line_and_column(tmp_path: Path) -> None:
    """One run shows them all; a misspelt field gets its likely meaning."""
    file = tmp_path / "lab.yaml"
    file.write_text(
        "topology: 2-master\n"
        "kubernets: v1.37\n"
        "name: Cluster2\n"
        "network:\n"
        "  pods: 10.0.0.1/16\n"
        "api_port: 70000\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecError) as caught:
        spec.load(file)
    places = {mistake.split(": ")[0]: mistake for mistake in caught.value.mistakes}
    assert set(places) == {"1:1", "2:1", "3:1", "5:3", "6:1"}
    assert "did you mean kubernetes?" in places["2:1"]
    assert "5 mistakes" in str(caught.value)


def test_a_key_that_stands_twice_is_a_mistake(tmp_path: Path) -> None:
    """YAML would silently take the last one."""
    file = tmp_path / "lab.yaml"
    file.write_text("topology: 1-node\ntopology: 3-master\n", encoding="utf-8")
    with pytest.raises(SpecError, match="stands twice; first at 1:1"):
        spec.load(file)


@pytest.mark.parametrize("text", ["", "- a", "a: [", "\t"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    """Never a traceback."""
    file = tmp_path / "lab.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError):
        spec.load(file)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    """Overrides replace single fields."""
    file = tmp_path / "lab.yaml"
    text = "topology: 3-master\nname: mine\nnetwork:\n  domain: lab.test\n  family: ipv6\n"
    file.write_text(text, encoding="utf-8")
    asked = spec.load(file, {"topology": "1-node", "network": {"family": "dual"}})
    assert (asked.topology, asked.lab_name) == ("1-node", "mine")
    assert (asked.network.domain, asked.network.family) == ("lab.test", "dual")


@pytest.mark.parametrize("asked", ["v1.37", "1.37", "v1.37.2", "1.37.2"])
def test_a_release_may_be_named_in_short(asked: str) -> None:
    """A minor means its newest pinned patch."""
    assert spec.build({"kubernetes": asked}).kubernetes == versions.DEFAULT


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ({"services": "10.244.8.0/24"}, "overlap"),
        ({"pods": "fd00::/48"}, "is IPv6, and network.family is ipv4"),
        ({"pods": "10.244.0.0/24"}, "too small"),
        ({"services": "10.96.0.0/28"}, "too small"),
        ({"nodes": "10.96.1.0/24"}, "overlap"),
    ],
)
def test_t11_t12_ranges_are_compared_pairwise(network: dict[str, str], said: str) -> None:
    """T11, T12: a Service range inside the pod range, IPv6, or too little room."""
    with pytest.raises(SpecError) as caught:
        spec.build({"network": network})
    assert said in str(caught.value)
