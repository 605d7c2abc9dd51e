"""What a task begins with: a plain base, which the box is itself, or the files of an image that Docker builds."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tracewheel import DataError, ForeignFolder, parse_json
from tracewheel_worlds.box_state import StoredFile, check_path, stored_file
from tracewheel_worlds.harbor.directory import for_box
from tracewheel_worlds.sandbox import BoxFile, Limits
from tracewheel_worlds.sandbox.archives import packed_files, unpacked_files
from tracewheel_worlds.sandbox.base import SYSTEM

# Bases that hold little beside a shell and Python, as a box does.
PLAIN_BASE = re.compile(
    r"FROM\s+((docker\.io/(library/)?|ghcr\.io/laude-institute/t-bench/)?(ubuntu|debian|python)[-:@\d.]\S*|ubuntu|debian|python)",
    re.IGNORECASE,
)
PLAIN_FOLDER = re.compile(r"WORKDIR\s+/(\w[\w.-]*)", re.IGNORECASE | re.ASCII)
ALWAYS = ("app", "logs", "root", "solution", "tests")
BUILD_SECONDS = 1800.0
MOST = Limits(disk_mb=64)  # files of an image outside the system's own folders
NOT_COPIED = {*SYSTEM, "var"}
NOT_SET = {"PATH", "HOME"}  # the box has its own


@dataclass
class Image:
    """What a box begins with.

    Attributes:
        files: By path from the root, as `app/data.csv`.
        folders: The folders at the root that they lie in, and those that the task may use.
        workdir: Where commands run.
        env: Variables.
    """

    files: dict[str, BoxFile] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: set(ALWAYS))
    workdir: str = "/app"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def stored(self) -> dict[str, StoredFile]:
        """The files as JSON."""
        return {path: stored_file(file) for path, file in sorted(self.files.items())}


def image_of(dockerfile: str, context: ForeignFolder) -> Image:
    """What a task's Dockerfile makes.

    Raises:
        DataError: it needs an image, and there is no Docker here, or Docker cannot build it.
    """
    lines = [line.strip() for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    workdir = PLAIN_FOLDER.fullmatch(lines[-1]) if len(lines) == 2 else None
    if lines and not (PLAIN_BASE.fullmatch(lines[0]) and (len(lines) == 1 or (workdir and workdir[1] not in SYSTEM))):
        image = _built(context, lines[0])
    else:
        image = Image(workdir=f"/{workdir[1]}" if workdir else "/app")
    name = image.workdir.strip("/")
    check_path(name)
    image.folders.add(name.partition("/")[0])
    if not any(path == name or path.startswith(f"{name}/") for path in image.files):
        image.files[name] = BoxFile(mode=0o755, folder=True)
    return image


def with_folders(files: Mapping[str, BoxFile], folders: set[str]) -> dict[str, BoxFile]:
    """Files, and the folders at the root that would else be missing."""
    tops = {PurePosixPath(path).parts[0] for path in files}
    return {**files, **{name: BoxFile(mode=0o755, folder=True) for name in sorted(folders - tops)}}


def _built(context: ForeignFolder, first: str) -> Image:
    """The files of an image that Docker builds: those that do not lie in the system's own folders.

    Raises:
        DataError: there is no Docker, it fails, or the files are too many.
    """
    program = shutil.which("docker")
    if program is None:
        raise DataError(
            f"{context.path / 'Dockerfile'} needs an image ({first[:60]} ...) and docker is not on the PATH: install Docker, "
            "or write a Dockerfile of FROM ubuntu, debian or python and WORKDIR alone"
        )
    files = {name: for_box(file) for name, file in context.files().items()}
    built = _docker(program, context, "build", "--quiet", "-", given=packed_files(files, MOST)).decode().strip()
    config = parse_json(_docker(program, context, "image", "inspect", "--format", "{{json .Config}}", built).decode())
    container = _docker(program, context, "create", "--network", "none", built, "true").decode().strip()
    try:
        left = _files(_docker(program, context, "export", container))
    finally:
        _docker(program, context, "rm", container)
    if left is None:
        raise DataError(f"its image holds paths that lead out, or more than {MOST.files} files or {MOST.disk_mb} MB for a box")
    for path in left:
        check_path(path)
    env = dict(variable.partition("=")[::2] for variable in config.get("Env") or [])
    return Image(
        left,
        {*ALWAYS, *(path.partition("/")[0] for path in left)},
        config.get("WorkingDir") or "/app",
        {name: value for name, value in env.items() if name not in NOT_SET},
    )


def _docker(program: str, context: ForeignFolder, *words: str, given: bytes = b"") -> bytes:
    try:
        done = subprocess.run([program, *words], input=given, capture_output=True, timeout=BUILD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{context.path / 'Dockerfile'}: docker {words[0]}: {error}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DataError(
            f"{context.path / 'Dockerfile'}: docker {words[0]} failed: {said[-1][:200] if said else done.returncode}"
        )
    return done.stdout


def _files(exported: bytes) -> dict[str, BoxFile] | None:
    """The files of an exported container that a box takes over; None where they are more than it may hold."""
    kept = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(exported)) as archive, tarfile.open(fileobj=kept, mode="w") as packed:
        for member in archive:
            top, _, below = member.name.removeprefix("./").partition("/")
            if below and top not in NOT_COPIED:
                packed.addfile(member, archive.extractfile(member) if member.isfile() else None)
    return unpacked_files(kept.getvalue(), MOST)
