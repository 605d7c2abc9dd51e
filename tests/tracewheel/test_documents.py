"""README, AGENTS.md and the pages of docs/ and of the wheels name what exists: paths, commands, exit codes."""

import re
import shlex
from pathlib import Path

import pytest

from flows.cli import build_parser
from flows.commands.command import find_commands, own_commands
from flows.commands.moved import WHEELS
from tests.reference import reference

ROOT = Path(__file__).parents[2]
OWN = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "mlflow/README.md"]
PAGES = [
    *OWN,
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("plugins/*/docs/*.md")),
    *sorted(ROOT.glob("plugins/*/README.md")),
]
PATH = re.compile(r"(?<![\w./-])(?:tracewheel|tasks|flows|plugins|tests|benchmarks|configs|docs)/[\w./-]*[\w/]")
FILE = re.compile(r"`(\w+\.py)`")
MODULE = re.compile(r"(?<![\w/.])tracewheel(?:\.\w+){2,}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_paths_exist(page):
    missing = [
        path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists() and not (page.parent / path).exists()
    ]
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


def test_the_reference_page_is_made_from_the_code():
    assert (ROOT / "docs/reference.md").read_text() == reference(), "mend: python -m tests.reference > docs/reference.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_commands_exist(page):
    """In code blocks and code, `tracewheel WORD` begins a command; those of wheels may not be installed."""
    names = {command.name for command in own_commands()} | WHEELS.keys()
    groups = {name.split()[0] for name in names if " " in name}
    for first, second in re.findall(r"(?:^|`|/)tracewheel ([a-z][\w-]+)(?: ([a-z][\w-]*))?", page.read_text(), re.MULTILINE):
        assert (f"{first} {second}" if first in groups and second else first) in names | groups


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_code_blocks_are_complete(page):
    """They parse as they stand, options that a command cannot do without included."""
    names = {command.name.split()[0] for command in find_commands()}
    blocks = re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    typed = [found[1] for line in lines if (found := re.match(r"\s*(?:\S+/)?tracewheel ([^>]*)", line))]
    for words in (shlex.split(each, comments=True) for each in typed):
        if words[0] in names:  # those of wheels may not be installed
            build_parser(words[0]).parse_args(words)


def test_the_readmes_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})
