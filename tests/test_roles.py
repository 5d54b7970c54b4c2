"""Each role can be used by itself: documented, checked, its own names only."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from labtool import inventory, process
from labtool.topology import Topology

ROOT = Path(__file__).resolve().parent.parent
ROLES = sorted(p.name for p in (ROOT / "roles").iterdir() if p.is_dir())
TYPES = {
    "int": int,
    "str": str,
    "bool": bool,
    "list": list,
    "dict": dict,
    "path": str,
}
GIVEN = {"lab", "node"}


def read(role: str, path: str) -> Any:
    """A YAML file of a role."""
    return yaml.safe_load((ROOT / "roles" / role / path).read_text(encoding="utf-8"))


def options(role: str) -> dict[str, dict[str, Any]]:
    """What the role's argument specs say."""
    main = read(role, "meta/argument_specs.yml")["argument_specs"]["main"]
    found: dict[str, dict[str, Any]] = main["options"]
    return found


def table(text: str) -> dict[str, str]:
    """Variables of a Markdown table, with their defaults: | `name` | `default` | ..."""
    rows = (line.split("|") for line in text.splitlines() if line.startswith("| `"))
    return {row[1].strip().strip("`"): row[2].strip().strip("`") for row in rows}


def imported(playbook: Path) -> list[str]:
    """The roles that a playbook uses, in order."""
    plays = yaml.safe_load(playbook.read_text(encoding="utf-8"))
    tasks = (task.get("ansible.builtin.import_role") for p in plays for task in p.get("tasks", []))
    return [task["name"] for task in tasks if task]


def test_the_playbook_uses_every_role_and_no_other() -> None:
    """A role that nothing uses is not tested by any lab."""
    assert set(imported(ROOT / "playbooks" / "create.yml")) == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_the_roles_own(role: str) -> None:
    """Two roles in one play must not meet in a name."""
    assert all(name.startswith(f"{role}_") for name in read(role, "defaults/main.yml"))


@pytest.mark.parametrize("role", ROLES)
def test_specs_and_defaults_agree(role: str) -> None:
    """Names, values and types; what the inventory gives is required."""
    defaults, specs = read(role, "defaults/main.yml"), options(role)
    assert set(specs) == {*defaults, *GIVEN}
    for name, option in specs.items():
        assert option["description"]
        if name in GIVEN:
            assert option["required"] is True
            assert option["type"] == "dict"
        else:
            assert option["default"] == defaults[name], name
            assert type(defaults[name]) is TYPES[option["type"]], name


@pytest.mark.parametrize("role", ROLES)
def test_each_default_is_explained_where_it_stands(role: str) -> None:
    """A comment above each, and the same words in the argument specs."""
    text = (ROOT / "roles" / role / "defaults" / "main.yml").read_text(encoding="utf-8")
    for name, option in options(role).items():
        if name not in GIVEN:
            found = re.search(rf"^# (.+)\n{name}:", text, re.MULTILINE)
            assert found, name
            assert found[1] == option["description"]


@pytest.mark.parametrize("role", ROLES)
def test_the_readme_names_each_variable_with_its_default(role: str) -> None:
    """As people look there first."""
    readme = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {role}\n")
    told = table(readme)
    told.pop("lab`, `node")
    assert told == {name: str(v) for name, v in read(role, "defaults/main.yml").items()}


def test_the_page_on_roles_names_all_of_them_with_their_variables() -> None:
    """In the order of the playbook."""
    page = (ROOT / "docs" / "roles.md").read_text(encoding="utf-8")
    order = list(dict.fromkeys(imported(ROOT / "playbooks" / "create.yml")))
    named = re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE)
    assert named == order
    told = table(page)
    wanted = {k: str(v) for r in ROLES for k, v in read(r, "defaults/main.yml").items()}
    assert told == wanted


@pytest.mark.parametrize("role", ROLES)
def test_meta_says_who_what_and_where(role: str) -> None:
    """And depends on nothing: the order stands in the playbook alone."""
    meta = read(role, "meta/main.yml")
    about = meta["galaxy_info"]
    assert about["license"] == "Apache-2.0"
    assert (
        about["description"]
        == (read(role, "meta/argument_specs.yml")["argument_specs"]["main"]["short_description"])
    )
    assert meta["dependencies"] == []


@pytest.mark.parametrize("role", ROLES)
def test_tasks_are_few_and_talk_to_a_node_once_each(role: str) -> None:
    """Our own modules take whole lists of files; each task on a node costs a second."""
    tasks = read(role, "tasks/main.yml")
    assert 1 <= len(tasks) <= 4
    for task in tasks:
        assert task["name"][0].isupper()
        (module,) = (key for key in task if "." in key)
        assert module.startswith("labtool.node.")
        template = task[module].get("role")
        if template:
            assert template == role
            assert (ROOT / "templates" / role).is_dir()


def test_each_template_folder_is_a_roles_or_the_node_images() -> None:
    """None is left over."""
    folders = {p.name for p in (ROOT / "templates").iterdir()}
    used = {
        task.get("labtool.node.tree", {}).get("role")
        for r in ROLES
        for task in read(r, "tasks/main.yml")
    }
    assert folders == {*used - {None}, "node_image"}


def test_roles_work_in_a_play_of_ones_own(three_masters: Topology, tmp_path: Path) -> None:
    """By name, under `roles:`, with plain ansible-playbook and the generated inventory."""
    inventory.write(three_masters, tmp_path)
    play = [{"name": "Mine", "hosts": "cluster", "gather_facts": False, "roles": ROLES}]
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    env = process.clean_environment({"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")})
    argv = [sys.executable, "-m", "ansible", "playbook", "--list-tasks", "mine.yml"]
    said = process.run(argv, env=env, cwd=tmp_path).stdout
    for role in ROLES:
        assert f"{role} : Validating arguments against arg spec" in said
