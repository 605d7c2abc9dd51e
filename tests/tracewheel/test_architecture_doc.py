"""One floor plan: the table in docs/architecture.md, the import contract, and the folders; and no circle of imports."""

import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]


def contract_floors():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract["name"] == "the floors of the domain")
    return [[room.strip() for room in floor.split("|")] for floor in floors]


def table_floors():
    """(number, rooms) of each row of the table, from the top floor down."""
    section = (ROOT / "docs/architecture.md").read_text().split("## Rooms and floors")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.*?) \| (?=\w)", section, re.MULTILINE)
    return [(int(number), re.findall(r"`(\w+)`", rooms)) for number, rooms in rows]


def test_the_table_shows_the_contract():
    assert [rooms for _, rooms in table_floors()] == contract_floors()
    assert [number for number, _ in table_floors()] == list(range(len(contract_floors()), 0, -1))


def test_every_room_is_a_package_and_the_top_level_holds_no_module():
    packages = {path.parent.name for path in (ROOT / "tracewheel").glob("*/__init__.py")}
    assert packages == {room for floor in contract_floors() for room in floor}
    assert [path.name for path in (ROOT / "tracewheel").glob("*.py")] == ["__init__.py"]


def test_the_page_lists_the_folders():
    section = (ROOT / "docs/architecture.md").read_text().split("## Folders")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `([\w/]+)/` \|", section, re.MULTILINE)
    parts = [path.parent for top in ("flows", "tasks") for path in (ROOT / top).glob("*/__init__.py")]
    assert {folder for folder in listed if "/" in folder} == {str(path.relative_to(ROOT)) for path in parts}
    assert [folder for folder in listed if not (ROOT / folder).is_dir()] == []


def test_no_modules_import_each_other_in_a_circle():
    graph = grimp.build_graph("tracewheel", "tasks", "flows", exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which shows the circle
    assert len(imports) > 300
