"""Child processes: a clean environment and a clear error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from labtool import process
from labtool.errors import CommandError, LabtoolError


@pytest.mark.parametrize(
    "locale", [{"LANG": "xx_YY"}, {"LANG": "C"}, {"LC_ALL": "xx"}, {"LANGUAGE": "de"}, {}]
)
def test_t23_a_child_gets_a_utf8_locale_that_exists(
    locale: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T23: unknown, missing or plain C locales of the user don't reach a child."""
    for name in ("LANG", "LC_ALL", "LANGUAGE", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    ask = "import locale,sys; locale.setlocale(locale.LC_ALL, ''); print(sys.stdout.encoding)"
    assert process.run([sys.executable, "-c", ask]).stdout.strip().lower() == "utf-8"
    assert "LANGUAGE" not in process.clean_environment()


@pytest.mark.parametrize(
    "name",
    ["ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_ROLES_PATH", "KUBECONFIG", "PYTHONPATH", "PYTEST_ADDOPTS"],
)
def test_t25_nothing_of_the_user_leaks_into_a_child(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T25: what would change a child's behaviour stays out."""
    monkeypatch.setenv(name, "x")
    assert name not in process.clean_environment()
    assert process.clean_environment({name: "ours"})[name] == "ours"


def test_a_failure_carries_command_code_and_output() -> None:
    """The message alone says what happened."""
    with pytest.raises(CommandError) as caught:
        process.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert caught.value.code == 3
    assert "out" in str(caught.value)
    assert "err" in str(caught.value)


def test_a_missing_program_leads_to_doctor() -> None:
    """Not a traceback."""
    with pytest.raises(LabtoolError, match="is not installed"):
        process.run(["no-such-program-here"])


def test_a_child_that_hangs_is_ended() -> None:
    """Every wait has an end."""
    with pytest.raises(LabtoolError, match="did not end within"):
        process.run(["sleep", "10"], timeout=0.1)


def test_input_and_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    """Odd output never breaks the caller."""
    assert process.run(["cat"], input_text="héllo").stdout == "héllo"
    odd = tmp_path / "odd"
    odd.write_bytes(b"a\xffb")
    assert process.run(["cat", odd]).stdout == "a\ufffdb"
