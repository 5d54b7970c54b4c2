"""What of a container's changes belongs into a save."""

from __future__ import annotations

from labtool.providers.still import changes

VOLUMES = ("/var/lib/etcd", "/var/lib/kubelet")


def rows(**kinds: tuple[str, ...]) -> list[dict[str, object]]:
    """As the engine lists them: 0 changed, 1 added, 2 removed."""
    numbers = {"changed": 0, "added": 1, "removed": 2}
    return [{"Path": p, "Kind": numbers[k]} for k, paths in kinds.items() for p in paths]


def test_added_and_changed_are_copied_and_removed_is_told() -> None:
    """In an order in which folders come before what is in them."""
    found = changes(
        rows(
            changed=("/etc", "/etc/kubernetes"),
            added=("/etc/kubernetes/admin.conf", "/a file"),
            removed=("/usr/local/bin/kubelet",),
        ),
        VOLUMES,
    )
    assert found.there == ("a file", "etc", "etc/kubernetes", "etc/kubernetes/admin.conf")
    assert found.removed == ("usr/local/bin/kubelet",)
    assert found.volumes == ("var/lib/etcd", "var/lib/kubelet")


def test_what_is_mounted_or_the_engines_own_is_left_out() -> None:
    """Memory is lost as in a stop; volumes come whole; the engine writes its files anew."""
    found = changes(
        rows(
            changed=("/run", "/dev", "/var/lib/etcd"),
            added=(
                "/dev/kmsg", "/run/x", "/tmp/y", "/etc/hosts", "/etc/resolv.conf", "/.dockerenv",
                "/var/lib/etcd/x", "/var/lib/labtool-hold", "/runner", "/var/lib/etcd2",
            ),
        ),
        VOLUMES,
    )  # fmt: skip
    assert found.there == ("runner", "var/lib/etcd2")


def test_a_folder_removed_and_made_again_has_nothing_of_the_old_one() -> None:
    """It is told as removed, and its new files as added."""
    found = changes(rows(removed=("/opt/cni",), added=("/opt/cni/new",)), VOLUMES)
    assert found.removed == ("opt/cni",)
    assert found.there == ("opt/cni", "opt/cni/new")
