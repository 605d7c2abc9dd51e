"""What a Dockerfile makes, without Docker: files of a plain base, copied or made by commands that need no network."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePosixPath

from tracewheel.core.errors import DataError
from tracewheel.core.foreign_folder import ForeignFolder
from tracewheel.core.strict_json import parse_json
from tracewheel.environments.box_state import StoredFile, box_files, check_path, state_bytes, stored_file
from tracewheel.environments.harbor.directory import files_in, for_box
from tracewheel.environments.harbor.tools import PATH, tool_files
from tracewheel.sandbox import BoxFile, Limits, SandboxConfig, make_sandbox
from tracewheel.sandbox.base import SYSTEM

# Bases that hold little beside a shell and Python, as a box does.
PLAIN_BASES = re.compile(
    r"(docker\.io/(library/)?|ghcr\.io/laude-institute/t-bench/)?(ubuntu|debian|python)[-:@\d.].*|ubuntu|debian|python"
)
WITHOUT_EFFECT = ("LABEL", "MAINTAINER", "EXPOSE", "CMD", "USER", "ARG", "STOPSIGNAL")
TOP = re.compile(r"\w[\w.-]*", re.ASCII)
ALWAYS = ("app", "logs", "root", "solution", "tests")
LIMITS = Limits(seconds=60.0, memory_mb=1024)
MOST_SECONDS = 300.0  # of all RUN together
MOST_STEPS = 200
MOST_IMAGE = 64 << 20
FILLED = ("WORKDIR", "ENV", "COPY", "ADD")
LONGEST_LINE = 4096  # of an instruction whose variables are filled in
MOST_ENV = 64 << 10


class Image:
    """What a box begins with.

    Attributes:
        files: By path from the root, as `app/data.csv`.
        folders: The folders at the root that they lie in, and those that the task may use.
        workdir: Where commands run.
        env: Variables.
        seconds: How long its commands took.
    """

    def __init__(self, context: ForeignFolder) -> None:
        self._context = context
        self.seconds = 0.0
        self.files: dict[str, BoxFile] = {}
        self.folders = set(ALWAYS)
        self.workdir = "/app"
        self.env: dict[str, str] = {}

    @property
    def stored(self) -> dict[str, StoredFile]:
        """The files as JSON."""
        return {path: stored_file(file) for path, file in sorted(self.files.items())}

    @cached_property
    def copied(self) -> dict[str, bool]:
        """The paths that may be copied, and which are folders."""
        return self._context.listing()


def build_image(dockerfile: str, context: ForeignFolder, sandbox: SandboxConfig) -> Image:
    """Do what a Dockerfile says, in boxes.

    Raises:
        DataError, ValueError: it needs an image of its own; the message says why.
    """
    image = Image(context)
    for word, rest in _instructions(dockerfile):
        if len(rest) > LONGEST_LINE and word in FILLED:
            raise DataError(f"its Dockerfile has {word} with more than {LONGEST_LINE} characters: {rest[:60]}")
        match word:
            case "FROM":
                _check_base(rest)
            case "WORKDIR":
                image.workdir = _at(image, _filled(image, rest))
                _use(image, image.workdir)
                _folder(image, image.workdir)
            case "ENV":
                _set(image, rest)
            case "COPY" | "ADD":
                _copy(image, rest, context)
            case "RUN":
                _run(image, rest, sandbox)
            case _ if word not in WITHOUT_EFFECT:
                raise DataError(f"its Dockerfile has {word}")
    _folder(image, image.workdir)
    return image


def with_folders(files: Mapping[str, BoxFile], folders: set[str]) -> dict[str, BoxFile]:
    """Files, and the folders at the root that would else be missing."""
    tops = {PurePosixPath(path).parts[0] for path in files}
    return {**files, **{name: BoxFile(mode=0o755, folder=True) for name in sorted(folders - tops)}}


def _instructions(dockerfile: str) -> list[tuple[str, str]]:
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\s*\n", " ", "\n".join(lines))
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        if re.search(r"<<-?\s*['\"]?\w", rest) and word.upper() in ("RUN", "COPY"):
            raise DataError("its Dockerfile has a here-document")
        found.append((word.upper(), rest.strip()))
    if "\0" in dockerfile or len(found) > MOST_STEPS:
        raise DataError(f"its Dockerfile holds a zero byte, or more than {MOST_STEPS} instructions")
    if sum(word == "FROM" for word, _ in found) > 1:
        raise DataError("its Dockerfile has several stages")
    return found


def _check_base(rest: str) -> None:
    name = next((word for word in rest.split() if not word.startswith("--")), "")
    if not PLAIN_BASES.fullmatch(name):
        raise DataError(f"it needs the image {name[:100] or 'of a FROM without a name'}")


def _filled(image: Image, text: str) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: image.env.get(match[1], ""), text)


def _at(image: Image, path: str) -> str:
    joined = PurePosixPath(image.workdir if not path.startswith("/") else "/", path)
    if ".." in joined.parts:
        raise DataError(f"its Dockerfile names {path}")
    return str(joined)


def _use(image: Image, path: str) -> None:
    """Note the folder at the root that a path lies in."""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[1] in SYSTEM or not TOP.fullmatch(parts[1]):
        raise DataError(f"its Dockerfile puts files at {path[:100]}")
    check_path(path.strip("/"))
    image.folders.add(parts[1])


def _folder(image: Image, path: str) -> None:
    name = path.strip("/")
    if not any(other == name or other.startswith(f"{name}/") for other in image.files):
        image.files[name] = BoxFile(mode=0o755, folder=True)


def _set(image: Image, rest: str) -> None:
    first, _, value = rest.partition(" ")
    if "=" in first:
        try:
            pairs = [pair.partition("=") for pair in shlex.split(rest)]
        except ValueError as error:
            raise DataError(f"its Dockerfile has ENV {rest[:60]}: {error}") from None
        image.env |= {name: _filled(image, text) for name, _, text in pairs}
    else:
        image.env[first] = value.strip()
    if not all(re.fullmatch(r"[A-Za-z_][\w.-]*", name, re.ASCII) for name in image.env):
        raise DataError(f"its Dockerfile has ENV {rest[:60]}, which names no variable")
    if sum(len(name) + len(text) for name, text in image.env.items()) > MOST_ENV:
        raise DataError(f"the variables of its Dockerfile take more than {MOST_ENV >> 10} KB")


def _words(rest: str) -> list[str] | None:
    """An instruction's words in the form of a JSON list; None of any other form."""
    try:
        words = parse_json(rest) if rest.startswith("[") else None
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def _copy(image: Image, rest: str, context: ForeignFolder) -> None:
    words = _words(rest) or rest.split()
    if any(word.startswith("--from") or "://" in word for word in words):
        raise DataError(f"its Dockerfile copies from elsewhere: {rest[:60]}")
    *sources, target = [_filled(image, word) for word in words if not word.startswith("--")] or [""]
    if not 0 < len(sources) <= MOST_STEPS:
        raise DataError(f"its Dockerfile copies nothing, or more than {MOST_STEPS} things: {rest[:60]}")
    place = _at(image, target)
    into = target.endswith(("/", ".")) or len(sources) > 1 or place in (image.workdir, "/" + place.strip("/").split("/")[0])
    for source in sources:
        for name, is_folder in _matching(image, source).items():
            if is_folder:
                files = {f"{place}/{path}": file for path, file in box_files(files_in(context.sub(name))).items()}
            else:
                files = {f"{place}/{PurePosixPath(name).name}" if into else place: for_box(context.read(name, MOST_IMAGE))}
            for path, file in files.items():
                _use(image, path)
                image.files[path.strip("/")] = file
            if state_bytes(image.files) > MOST_IMAGE:
                raise DataError(f"its Dockerfile makes more than {MOST_IMAGE >> 20} MB of files")
    for path in [
        path for path, file in image.files.items() if file.folder and any(other.startswith(path + "/") for other in image.files)
    ]:
        del image.files[path]


def _matching(image: Image, source: str) -> dict[str, bool]:
    """What of the context a source of COPY names, by path, and which are folders."""
    wanted = PurePosixPath(source.strip("/"))
    if ".." in wanted.parts:
        raise DataError(f"its Dockerfile copies {source[:100]} from outside")
    found = {
        name: is_folder
        for name, is_folder in {"": True, **image.copied}.items()
        if len(parts := PurePosixPath(name).parts) == len(wanted.parts) and all(map(fnmatchcase, parts, wanted.parts))
    }
    if not found:
        raise DataError(f"its Dockerfile copies {source[:100]}, which is not there")
    return found


def _run(image: Image, rest: str, sandbox: SandboxConfig) -> None:
    words = _words(rest)
    command = rest if words is None else shlex.join(words)
    for name in re.findall(r"(?<![\w.$}/])/(\w[\w.-]*)", command, re.ASCII):
        if name not in SYSTEM and name != "var":
            image.folders.add(name)
    config = sandbox.with_folders(sorted(image.folders))
    variables = {**image.env, "PATH": PATH, "HOME": "/root"}
    files = {**with_folders(image.files, image.folders), **tool_files()}
    run = make_sandbox(config).run(
        ["bash", "-c", f"cd {shlex.quote(image.workdir)} && {command}"], files, limits=LIMITS, keep=True, env=variables
    )
    image.seconds += run.seconds
    if run.exit_code != 0:
        said = run.stderr.decode(errors="replace").strip().splitlines()
        why = ", ".join(run.findings) or (said[-1] if said else f"exit status {run.exit_code}")
        raise DataError(f"RUN {' '.join(command.split())[:60]}: {why[:160]}")
    if image.seconds > MOST_SECONDS:
        raise DataError(f"the commands of its Dockerfile take longer than {MOST_SECONDS:g} s")
    image.files = {path: file for path, file in run.files.items() if not path.startswith(".tools")}
