"""What may be changed of a lab: read, checked and made absolute before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labtool import settings, spec
from labtool.errors import LabtoolError, SpecError
from labtool.spec import LabSpec


def test_every_field_that_can_be_changed_is_one() -> None:
    """And no other field of lab.yaml has its name."""
    assert set(settings.CHANGEABLE) < set(settings.parts(LabSpec().model_dump(mode="json")))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"extra_args": {"apiserver": {"--v": "4"}}}, "apiserver.--v: a flag is written without"),
        ({"extra_args": {"apiserver": {"a": "b c"}}}, "no white space"),
        ({"extra_args": {"kubelet": {"a": 'b"'}}}, "no white space, quotes"),
        ({"extra_args": {"kubelet": {"a": ""}}}, "no white space"),
        ({"extra_args": {"scheduler": {"feature-gates": "A=true"}}}, "use the field feature_gates"),
        ({"extra_args": {"kube_proxy": {"proxy-mode": "iptables"}}}, "kube-proxy ignores"),
        ({"extra_args": {"haproxy": {"v": "1"}}}, "is not a field here"),
        ({"feature_gates": {"hpaScaleToZero": True}}, "is written as in upstream's list"),
        ({"feature_gates": {"HPAScaleToZero": "maybe"}}, "feature_gates.HPAScaleToZero: "),
        ({"registries": {"https://a": {}}}, "named as in an image"),
        ({"registries": {"a.test": {"mirrors": ["b.test"]}}}, "is no URL such as"),
        ({"registries": {"a.test": {"mirror": []}}}, "is not a field here"),
        ({"proxy": {"http": "http://me:word@a"}}, "could be read in many places"),
        ({"proxy": {"http": "a:3128"}}, "is no URL such as"),
    ],
)
def test_mistakes_are_told_with_the_reason(values: dict[str, Any], said: str) -> None:
    """As all others."""
    with pytest.raises(SpecError) as caught:
        spec.build(values)
    assert said in str(caught.value)


def test_flags_may_be_written_as_yaml_has_them() -> None:
    """Numbers and booleans are what they are on a command line."""
    flags = {"v": 4, "profiling": True, "qps": 1.5}
    built = spec.build({"extra_args": {"scheduler": flags}})
    assert built.extra_args.scheduler == {"v": "4", "profiling": "true", "qps": "1.5"}
    assert spec.build({"extra_args": {"kube_proxy": {"v": 3}}}).extra_args.kube_proxy == {"v": "3"}


# -- paths -------------------------------------------------------------------------------


def load(folder: Path, text: str) -> dict[str, Any]:
    """A lab.yaml in a folder, as it is stored."""
    (folder / "lab.yaml").write_text(text, encoding="utf-8")
    return spec.load(folder / "lab.yaml").model_dump(mode="json")


def test_overrides_are_relative_to_the_file_and_stored_absolute(tmp_path: Path) -> None:
    """Each entry is the folder of a role; hidden files are nobody's business."""
    (tmp_path / "mine" / "kubelet" / "etc").mkdir(parents=True)
    (tmp_path / "mine" / "kubelet" / "etc" / "a.j2").write_text("{{ lab.name }}")
    (tmp_path / "mine" / ".git").mkdir()
    stored = load(tmp_path, "overrides: mine\n")
    assert stored["overrides"] == str(tmp_path / "mine")
    assert settings.files(stored) == [tmp_path / "mine" / "kubelet" / "etc" / "a.j2"]


def test_a_folder_of_no_role_is_told_before_anything_is_made(tmp_path: Path) -> None:
    """As is one of the node image, and a template that can't be read, by its line."""
    for name in ("kubelett", "node_image", "kubelet"):
        (tmp_path / "mine" / name).mkdir(parents=True)
    (tmp_path / "mine" / "kubelet" / "a.j2").write_text("\n{% if %}\n")
    (tmp_path / "mine" / "README").touch()
    with pytest.raises(SpecError) as caught:
        load(tmp_path, "overrides: mine\n")
    said = str(caught.value)
    for words in (
        "mine/kubelett is no role's folder; there are: cni_flannel, containerd,",
        "mine/node_image is part of the node image",
        "mine/README is no role's folder",
        "mine/kubelet/a.j2:2: ",
    ):
        assert words in said
    with pytest.raises(SpecError, match="1:1: overrides: there is no folder"):
        load(tmp_path, "overrides: other\n")


REGISTRY = """\
registries:
  a.test:
    mirrors: [https://b.test]
    ca: ca.crt
    credentials: login.yaml
"""


def test_credentials_are_read_where_they_are_needed(tmp_path: Path) -> None:
    """What is stored has the path alone."""
    (tmp_path / "ca.crt").write_text("a CA")
    login = tmp_path / "login.yaml"
    login.write_text("username: me\npassword: 1234\n")
    login.chmod(0o600)
    stored = load(tmp_path, REGISTRY)
    assert "1234" not in str(stored)
    assert settings.files(stored) == [tmp_path / "ca.crt", login]
    secrets = settings.registry_secrets(stored["registries"])
    assert secrets == {"a.test": {"ca": "a CA", "username": "me", "password": "1234"}}
    login.unlink()
    with pytest.raises(LabtoolError, match=r"a file of registry a\.test can't be used"):
        settings.registry_secrets(stored["registries"])


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("username: me\npassword: x\n", 0o640, "others may read .*: chmod 600"),
        ("me:x\n", 0o600, "must hold two lines of YAML"),
        ("- a: [", 0o600, "must hold two lines of YAML"),
    ],
)
def test_credentials_that_others_may_read_are_refused(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    """And those in another form, without showing them."""
    (tmp_path / "ca.crt").touch()
    (tmp_path / "login.yaml").write_text(text)
    (tmp_path / "login.yaml").chmod(mode)
    with pytest.raises(SpecError, match=f"5:5: registries.a.test.credentials: .*{said}"):
        load(tmp_path, REGISTRY)


def test_the_environments_proxies_are_taken_only_where_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In either case of letters (T19)."""
    monkeypatch.setenv("http_proxy", "http://a.test:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://b.test:2")
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setenv("no_proxy", "x.test, .y.test")
    assert spec.build({}).proxy == settings.Proxy()
    taken = spec.build({"proxy": "environment"}).proxy
    assert (taken.http, taken.https) == ("http://a.test:1", "http://b.test:2")
    assert taken.no_proxy == ("x.test", ".y.test")
