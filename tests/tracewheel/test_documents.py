"""README, AGENTS.md and the pages of docs/ name what exists: paths, commands, exit codes."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from flows import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "mlflow/README.md", *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"(?<![\w./-])(?:tracewheel|tasks|flows|plugins|tests|benchmarks|configs|docs)/[\w./-]*[\w/]")
FILE = re.compile(r"`(\w+\.py)`")
MODULE = re.compile(r"(?<![\w/.])tracewheel(?:\.\w+){2,}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_paths_exist(page):
    missing = [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page):
    folders = ("tracewheel", "tasks", "flows", "plugins", "benchmarks", "tests", "data")
    names = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert set(FILE.findall(page.read_text())) <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_modules_exist(page):
    missing = [name for name in MODULE.findall(page.read_text()) if not _exists(name)]
    assert missing == []


def _exists(name):
    """Whether a dotted name is a module or a name in a module."""
    path, _, last = name.rpartition(".")
    if (ROOT / name.replace(".", "/")).is_dir() or (ROOT / f"{name.replace('.', '/')}.py").is_file():
        return True
    holder = ROOT / path.replace(".", "/")
    source = holder / "__init__.py" if holder.is_dir() else holder.with_suffix(".py")
    return source.is_file() and re.search(rf"\b{last}\b", source.read_text()) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_lists_every_command():
    wheels = {point.name for point in entry_points(group="tracewheel.commands")}
    found = re.findall(r"^    (\w[\w-]*)", cli.build_parser().format_help(), re.MULTILINE)
    commands = [name for name in found if name not in wheels]
    section = (ROOT / "README.md").read_text().split("## Commands")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE) == commands


def test_the_readme_lists_every_exit_code():
    section = (ROOT / "README.md").read_text().split("## Commands")[1].split("\n## ")[0]
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)]
    ends = (cli.DONE, cli.FAILED, cli.BAD_INPUT, cli.REFUSED, cli.UNHEALTHY, cli.WITHIN, cli.PARTED)
    assert codes == [*ends, cli.INTERRUPTED, cli.TERMINATED]


def test_the_readmes_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})
