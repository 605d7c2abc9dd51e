"""The code that a finished run was made with, in a clean clone, and its packages, in a virtual environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel import DataError, FinishedRun, InfrastructureError, digest_of
from tracewheel import __file__ as door

PACKAGE = Path(door).parent
GIT_SECONDS = 300
LAST_LINES = 12
RECORDED, HERE = "recorded", "here"


@dataclass(frozen=True)
class Code:
    """Code to make a run with.

    Attributes:
        root: The folder that holds the package.
        folder: The working folder, from which a profile's paths are read.
        kind: `RECORDED` or `HERE`.
        commit: The commit; "" for code outside a repository.
        says: Sentences about how true it is to the run's code.
    """

    root: Path
    folder: Path
    kind: str
    commit: str
    says: tuple[str, ...] = ()


def check_out(run: FinishedRun, out: Path, repository: Path | None = None) -> Code:
    """Clone the code of a run into `out`, at its commit and with what its files held beyond it.

    Args:
        repository: A clone that has the commit; by default the one that holds the package, or the working folder.

    Raises:
        DataError: the commit or the changes are not to be had; the message says how to go on.
    """
    git, project = run.lineage.get("git"), run.lineage.get("project")
    if not git:
        raise DataError(
            f"run {run.run_id} was not made from a git repository: its code is not known; --code here makes it with this code"
        )
    source = _repository_with(git["commit"], [repository] if repository else [PACKAGE.parent, Path.cwd()], git.get("remote"))
    says = _clone(run, git, source, out / "code")
    code = folder = out / "code"
    if project:
        place = _repository_with(project["commit"], [Path.cwd()], project.get("remote"))
        says += _clone(run, project, place, out / "project")
        source, folder = place, out / "project"
    folder = folder / _prefix(source)
    folder.mkdir(parents=True, exist_ok=True)
    # A repository without the package is one of the user's own classes; the package is the one that is installed.
    holds = (code / PACKAGE.name / "__init__.py").is_file()
    if not holds:
        says.append("the repository does not hold the package: the code of the stages is the one that is installed here")
    if run.lineage.get("resumed"):
        says.append(
            f"the run was resumed {len(run.lineage['resumed'])} times with other code, packages or machine; here it is not"
        )
    return Code(code if holds else PACKAGE.parent, folder, RECORDED, git["commit"], tuple(says))


def code_here(run: FinishedRun) -> Code:
    """The code at hand, in its own place."""
    commit = (_git(PACKAGE.parent, "rev-parse", "HEAD") or "").strip()
    before = (run.lineage.get("git") or {}).get("commit")
    says = f"made with the code at hand (commit {commit[:12] or 'none'}), not that of the run ({str(before)[:12]})"
    return Code(PACKAGE.parent, Path.cwd(), HERE, commit, (says,))


def is_commit(name: Any) -> bool:
    """Whether a recorded name is that of a commit, and so no option of git."""
    return isinstance(name, str) and re.fullmatch(r"[0-9a-f]{7,64}", name) is not None


def _repository_with(commit: str, places: list[Path], remote: str | None) -> Path:
    if not is_commit(commit):
        raise DataError(f"{commit!r} is no commit: the run's record of its code is damaged; make it with --code here")
    tried = []
    for place in places:
        top = _git(place, "rev-parse", "--show-toplevel")
        if top is None:
            tried.append(f"{place} is no git repository")
        elif _git(Path(top.strip()), "cat-file", "-e", f"{commit}^{{commit}}") is None:
            tried.append(f"{top.strip()} does not have it")
        else:
            return Path(top.strip())
    origin = f" (from {remote})" if remote else ""
    raise DataError(
        f"commit {commit}, which the run was made with, is not to be had: {'; '.join(dict.fromkeys(tried))}. Fetch it{origin}, "
        "name a clone that has it with --repository DIR, or make the run with the code at hand: --code here"
    )


def _clone(run: FinishedRun, state: Mapping[str, Any], source: Path, out: Path) -> list[str]:
    """Clone a repository at a commit with recorded changes; returns what is not as it was."""
    out.parent.mkdir(parents=True, exist_ok=True)
    _must(out.parent, "clone", "-q", "--no-checkout", "--shared", str(source), str(out))
    _must(out, "-c", "advice.detachedHead=false", "checkout", "-q", "--detach", state["commit"])
    says = []
    if diff := state.get("diff"):
        file = run.record.path / diff["file"]
        if not file.is_file() or digest_of(file) != diff["sha256"]:
            raise DataError(f"{file}: the changes of the run's code beyond its commit are lost or damaged; --code here goes on")
        if file.read_bytes().startswith(b"# "):
            raise DataError(f"{file}: the changes beyond the commit were too many to keep; --code here goes on with this code")
        if file.stat().st_size:
            _must(out, "apply", "--binary", "--whitespace=nowarn", str(file.resolve()))
    elif state.get("changed"):
        says.append("the run's code had changes beyond its commit that were not recorded: this is the commit alone")
    if unknown := state.get("untracked"):
        says.append(
            f"git did not know {', '.join(unknown[:3])}{' and more' if len(unknown) > 3 else ''} of the run's code: not here"
        )
    return says


def _prefix(repository: Path) -> str:
    """The working folder in its repository, as "" or "folder/"."""
    here = Path.cwd().resolve()
    return here.relative_to(repository.resolve()).as_posix() if here.is_relative_to(repository.resolve()) else ""


def _must(folder: Path, *arguments: str) -> None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"git {arguments[0]}: {error}") from error
    if done.returncode:
        raise InfrastructureError(f"git {' '.join(arguments)}: {done.stderr.strip() or f'exit code {done.returncode}'}")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def build_environment(run: FinishedRun, out: Path) -> Path:
    """Make a virtual environment in `out` with the run's packages; returns its interpreter.

    pip's own settings (`PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL`, its files) say where it takes them from.

    Raises:
        DataError: the run recorded no lock, or its Python is not installed.
        InfrastructureError: pip could not install one of the packages.
    """
    lock = (run.lineage.get("environment") or {}).get("file")
    if not lock or not (run.record.path / lock).is_file():
        raise DataError(
            f"{run.record.path}: the run, of an earlier version, recorded no lock of its packages; use --environment here"
        )
    lines = (run.record.path / lock).read_text(encoding="utf-8").splitlines()
    own = [line for line in lines if line.partition("==")[0].strip().lower() != PACKAGE.name]
    out.mkdir(parents=True)
    requirements = out / "requirements.txt"
    requirements.write_text("".join(f"{line}\n" for line in own))
    _install([_python_of(run), "-m", "venv", str(out / "venv")])
    python = out / "venv" / "bin" / "python"
    _install([str(python), "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "-r", str(requirements)])
    return python


def _python_of(run: FinishedRun) -> str:
    version = str((run.lineage.get("machine") or {}).get("python", "")).rpartition(" ")[2]
    name = ".".join(version.split(".")[:2])
    if not name or sys.version.startswith(f"{name}."):
        return sys.executable
    found = shutil.which(f"python{name}")
    if found is None:
        raise DataError(
            f"the run was made with Python {version}, and there is no python{name} here; install it, or use --environment here"
        )
    return found


def _install(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).splitlines()[-LAST_LINES:])
        raise InfrastructureError(
            f"{' '.join(command[1:4])}: exit code {done.returncode}; a package that is not in pip's index, such as a build of "
            f"torch for one device, needs PIP_EXTRA_INDEX_URL\n{said}"
        )
