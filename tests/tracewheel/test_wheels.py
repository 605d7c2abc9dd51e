"""Wheels: they use public names only, and who names a kind of one that is not installed is told how to get it."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

import tracewheel
from flows.commands.describe import missing
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import WHEELS, KindTable, load_class
from tracewheel.environments import ENVIRONMENTS
from tracewheel.scoring.verifiers import VERIFIERS

ROOT = Path(__file__).parents[2]
FILES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("plugins/*/tracewheel_*/**/*.py"))]
OURS = ("tracewheel", "flows", "tasks")
PUBLIC = {"__file__", *tracewheel.__all__}
GROUPS = {
    "audits": "audit",
    "dialects": "dialect",
    "environments": "environment",
    "verifiers": "verifier",
    "worlds": "world",
    "log_formats": "log format",
    "log_files": "log file",
    "readers": "reader",
    "sources": "source",
    "tool_formats": "tool format",
    "stages": "section",
    "screens": "screen",
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_a_wheel_imports_public_names_only(file):
    wheel = file.split("/")[2]
    for node in ast.walk(ast.parse((ROOT / file).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            top = node.module.partition(".")[0]
            if top.startswith("tracewheel_") and top != wheel:
                check_of_another_wheel(file.split("/")[1], node)
            assert top not in OURS or node.module == "tracewheel", f"from {node.module} import ..."
            assert top not in OURS or {name.name for name in node.names} <= PUBLIC
        elif isinstance(node, ast.Import):
            names = {name.name for name in node.names}
            assert not {name for name in names if name.partition(".")[0] in OURS} - {"tracewheel"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not re.search(r"\b(from|import) (tracewheel|flows|tasks)\.", node.value), "in an example"


def check_of_another_wheel(wheel, node):
    """A wheel may use the public names of one that it depends on."""
    names = {name.name for name in node.names}
    project = tomllib.loads((ROOT / "plugins" / wheel / "pyproject.toml").read_text())["project"]
    assert node.module.replace("_", "-") in project["dependencies"]
    held = importlib.import_module(node.module).PUBLIC.values()
    assert names <= {name for names in held for name in names}


def points():
    """What wheels of this checkout name, by sort."""
    for path in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        for group, named in project.get("entry-points", {}).items():
            for name in named:
                yield group.partition(".")[2], name, project["name"]


def test_the_table_of_wheels_is_that_of_their_entry_points():
    found = {(sort, name): wheel for group, name, wheel in points() if (sort := GROUPS.get(group))}
    listed = {(sort, name): wheel for sort, named in WHEELS.items() for name, wheel in named.items()}
    assert listed == found


@pytest.mark.parametrize(("sort", "kind", "wheel"), [(s, k, w) for s, named in WHEELS.items() for k, w in named.items()])
def test_who_names_a_kind_without_its_wheel_is_told_how_to_get_it(sort, kind, wheel):
    alone = KindTable("tracewheel.no_such_group", {})
    with pytest.raises(ConfigError, match=f"{sort} '{kind}' is not installed: pip install {wheel} .*make setup-plugins"):
        load_class(kind, alone, sort)


def test_describe_names_what_is_not_installed():
    listed = {(one["sort"], one["kind"]): one["summary"] for one in missing({"environment": {}, "verifier": VERIFIERS})}
    assert listed["environment", "code"].startswith("not installed: pip install tracewheel-worlds")
    assert {kind for sort, kind in listed if sort == "environment"} == WHEELS["environment"].keys()
    assert not {kind for _, kind in listed} & ({*ENVIRONMENTS} - WHEELS["environment"].keys())
