"""A real virtual machine with stock Debian, run by QEMU; for a lab over SSH.

Its disk is made from Debian's packages: a kernel, systemd, sshd, sudo and Python. It has one
interface, behind QEMU's NAT; SSH and the API are forwarded to 127.0.0.1. Where the processor
can't be virtualised it is emulated, ten to twenty times slower (docs/ssh.md).

    python molecule/vm/machine.py up FOLDER       writes FOLDER/hosts.yml and FOLDER/lab.yaml
    python molecule/vm/machine.py down FOLDER
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import yaml

from labtool.artifacts import debian
from labtool.host import free_port

PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "systemd-timesyncd", "iproute2"),
    *("openssh-server", "sudo", "python3", "linux-image-cloud-amd64"),
)
USER = "ops"
ADDRESS = "10.0.2.15"  # what QEMU's own DHCP server gives
DISK_SIZE = "16G"
MEMORY_MIB = 6144
CORES = 2
BOOT_SECONDS = 600
PATIENCE = 10  # for a lab on an emulated processor
_NETWORK = "[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n"
_NAMESERVER = "nameserver 10.0.2.3\n"


def disk(folder: Path) -> None:
    """Make the disk, with its kernel and initial file system beside it."""
    root = folder / "root"
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    argv += ['--aptopt=APT::Install-Recommends "false"']
    sources = map(str, debian.debian_sources())
    subprocess.run([*argv, debian.suite(), root, *sources], check=True)
    subprocess.run(["useradd", "--root", root, "-m", "-s", "/bin/bash", USER], check=True)
    write(root / "etc/hostname", "VM1.Lab.Example\n")
    write(root / "etc/sudoers.d/ops", f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    write(root / "etc/systemd/network/20-any.network", _NETWORK)
    write(root / "etc/resolv.conf", _NAMESERVER)
    write(root / "etc/fstab", "/dev/nvme0n1 / ext4 defaults 0 1\n")
    keys = root / f"home/{USER}/.ssh/authorized_keys"
    write(keys, key.with_suffix(".pub").read_text(encoding="ascii"))
    subprocess.run(["chroot", root, "chown", "-R", f"{USER}:", f"/home/{USER}"], check=True)
    units = ["systemd-networkd", "systemd-timesyncd"]
    subprocess.run(["systemctl", f"--root={root}", "-q", "enable", *units], check=True)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((root / "boot").glob(f"{name}-*")), folder / name)
    raw = folder / "disk.raw"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, raw, DISK_SIZE], check=True)
    shutil.rmtree(root)


def write(path: Path, text: str) -> None:
    """Write a file of the machine's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def start(folder: Path, ssh: int, api: int) -> None:
    """Start the machine; it goes on without us."""
    forwards = f"hostfwd=tcp:127.0.0.1:{ssh}-:22,hostfwd=tcp:127.0.0.1:{api}-:6443"
    argv = ["qemu-system-x86_64", "-name", "labtool-vm", "-machine", "q35"]
    argv += ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"]
    argv += ["-smp", str(CORES), "-m", str(MEMORY_MIB)]
    argv += ["-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd.img")]
    argv += ["-append", "root=/dev/nvme0n1 rw console=ttyS0 quiet"]
    argv += ["-drive", f"file={folder / 'disk.raw'},format=raw,if=none,id=disk,cache=unsafe"]
    argv += ["-device", "nvme,drive=disk,serial=lab"]
    argv += ["-netdev", f"user,id=net,{forwards}", "-device", "virtio-net-pci,netdev=net"]
    argv += ["-display", "none", "-serial", f"file:{folder / 'console.log'}", "-monitor", "none"]
    argv += ["-daemonize", "-pidfile", str(folder / "pid")]
    subprocess.run(argv, check=True)


def wait_for_ssh(port: int) -> None:
    """Until its sshd sends its greeting."""
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
        ):
            if connection.recv(4) == b"SSH-":
                return
        time.sleep(1)
    sys.exit(f"no sshd within {BOOT_SECONDS} s; its console: console.log")


def up(folder: Path) -> None:
    """Make and start the machine; write what labtool needs to know of it."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if not (folder / "disk.raw").exists():
        disk(folder)
    made = time.monotonic()
    ssh, api = free_port(), free_port()
    start(folder, ssh, api)
    wait_for_ssh(ssh)
    reached = {"ansible_host": "127.0.0.1", "ansible_port": ssh, "node_address": ADDRESS}
    ways = {"ansible_user": USER, "ansible_ssh_private_key_file": str(folder / "key")}
    tree = {"all": {"vars": ways, "children": {"masters": {"hosts": {"vm1": reached}}}}}
    lab = {
        "name": "vm",
        "provider": "ssh",
        "patience": PATIENCE,
        "ssh": {"inventory": "hosts.yml", "accept_new": True, "api": f"127.0.0.1:{api}"},
    }
    for name, content in (("hosts.yml", tree), ("lab.yaml", lab)):
        text = yaml.safe_dump(content, sort_keys=False)
        (folder / name).write_text(text, encoding="utf-8")
    sys.stdout.write(
        f"disk {made - began:.0f} s, boot {time.monotonic() - made:.0f} s\n"
        f"next: ./lab create -f {folder / 'lab.yaml'}\n"
    )


def down(folder: Path) -> None:
    """Switch the machine off, and remove its folder."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((folder / "pid").read_text(encoding="ascii")), signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)


def main(words: list[str]) -> None:
    """The command line."""
    {"up": up, "down": down}[words[0]](Path(words[1]).absolute())


if __name__ == "__main__":
    main(sys.argv[1:])
