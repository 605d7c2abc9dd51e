"""What a Dockerfile makes, without Docker: files of a plain base, copied or made by commands that need no network."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tracewheel.environments.box_state import StoredFile, box_files, stored_file
from tracewheel.environments.harbor.directory import Refused, files_in
from tracewheel.environments.harbor.tools import PATH, tool_files
from tracewheel.sandbox import BoxFile, Limits, SandboxConfig, make_sandbox
from tracewheel.sandbox.base import SYSTEM

# Bases that hold little beside a shell and Python, as a box does.
PLAIN_BASES = re.compile(
    r"(docker\.io/(library/)?|ghcr\.io/laude-institute/t-bench/)?(ubuntu|debian|python)[-:@\d.].*|ubuntu|debian|python"
)
WITHOUT_EFFECT = ("LABEL", "MAINTAINER", "EXPOSE", "CMD", "USER", "ARG", "STOPSIGNAL")
ALWAYS = ("app", "logs", "root", "solution", "tests")
LIMITS = Limits(seconds=60.0, memory_mb=1024)


class Image:
    """What a box begins with.

    Attributes:
        files: By path from the root, as `app/data.csv`.
        folders: The folders at the root that they lie in, and those that the task may use.
        workdir: Where commands run.
        env: Variables.
    """

    def __init__(self) -> None:
        self.files: dict[str, BoxFile] = {}
        self.folders = set(ALWAYS)
        self.workdir = "/app"
        self.env: dict[str, str] = {}

    @property
    def stored(self) -> dict[str, StoredFile]:
        """The files as JSON."""
        return {path: stored_file(file) for path, file in sorted(self.files.items())}


def build_image(dockerfile: str, context: Path, sandbox: SandboxConfig) -> Image:
    """Do what a Dockerfile says, in boxes.

    Raises:
        Refused: it needs an image of its own; the message says why.
    """
    image = Image()
    for word, rest in _instructions(dockerfile):
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
                raise Refused(f"its Dockerfile has {word}")
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
            raise Refused("its Dockerfile has a here-document")
        found.append((word.upper(), rest.strip()))
    if sum(word == "FROM" for word, _ in found) > 1:
        raise Refused("its Dockerfile has several stages")
    return found


def _check_base(rest: str) -> None:
    name = next(word for word in rest.split() if not word.startswith("--"))
    if not PLAIN_BASES.fullmatch(name):
        raise Refused(f"it needs the image {name}")


def _filled(image: Image, text: str) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: image.env.get(match[1], ""), text)


def _at(image: Image, path: str) -> str:
    joined = PurePosixPath(image.workdir if not path.startswith("/") else "/", path)
    if ".." in joined.parts:
        raise Refused(f"its Dockerfile names {path}")
    return str(joined)


def _use(image: Image, path: str) -> None:
    """Note the folder at the root that a path lies in."""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[1] in SYSTEM:
        raise Refused(f"its Dockerfile puts files at {path}")
    image.folders.add(parts[1])


def _folder(image: Image, path: str) -> None:
    name = path.strip("/")
    if not any(other == name or other.startswith(f"{name}/") for other in image.files):
        image.files[name] = BoxFile(mode=0o755, folder=True)


def _set(image: Image, rest: str) -> None:
    first, _, value = rest.partition(" ")
    if "=" not in first:
        image.env[first] = value.strip()
        return
    try:
        pairs = shlex.split(rest)
    except ValueError as error:
        raise Refused(f"its Dockerfile has ENV {rest[:60]}: {error}") from None
    image.env |= {name: _filled(image, text) for name, _, text in (pair.partition("=") for pair in pairs)}


def _copy(image: Image, rest: str, context: Path) -> None:
    words = json.loads(rest) if rest.startswith("[") else rest.split()
    if any(word.startswith("--from") or "://" in word for word in words):
        raise Refused(f"its Dockerfile copies from elsewhere: {rest[:60]}")
    *sources, target = [_filled(image, word) for word in words if not word.startswith("--")]
    place = _at(image, target)
    into = target.endswith(("/", ".")) or len(sources) > 1 or place in (image.workdir, "/" + place.strip("/").split("/")[0])
    for source in sources:
        found = sorted(context.glob(source.strip("/"))) if source.strip("/") not in ("", ".") else [context]
        if not found:
            raise Refused(f"its Dockerfile copies {source}, which is not there")
        for one in found:
            if not one.resolve().is_relative_to(context.resolve()):
                raise Refused(f"its Dockerfile copies {source} from outside")
            if one.is_dir():
                files = {f"{place}/{path}": file for path, file in box_files(files_in(one)).items()}
            else:
                files = {
                    f"{place}/{one.name}" if into else place: BoxFile(
                        one.read_bytes(), 0o755 if one.stat().st_mode & 0o100 else 0o644
                    )
                }
            for path, file in files.items():
                _use(image, path)
                image.files[path.strip("/")] = file
    for path in [
        path for path, file in image.files.items() if file.folder and any(other.startswith(path + "/") for other in image.files)
    ]:
        del image.files[path]


def _run(image: Image, rest: str, sandbox: SandboxConfig) -> None:
    command = shlex.join(json.loads(rest)) if rest.startswith("[") else rest
    for name in re.findall(r"(?<![\w.$}/])/(\w[\w.-]*)", command):
        if name not in SYSTEM and name != "var":
            image.folders.add(name)
    config = sandbox.model_copy(update={"folders": tuple(sorted(image.folders))})
    variables = {**image.env, "PATH": PATH, "HOME": "/root"}
    files = {**with_folders(image.files, image.folders), **tool_files()}
    run = make_sandbox(config).run(
        ["bash", "-c", f"cd {shlex.quote(image.workdir)} && {command}"], files, limits=LIMITS, keep=True, env=variables
    )
    if run.exit_code != 0:
        said = run.stderr.decode(errors="replace").strip().splitlines()
        why = ", ".join(run.findings) or (said[-1] if said else f"exit status {run.exit_code}")
        raise Refused(f"RUN {' '.join(command.split())[:60]}: {why[:160]}")
    image.files = {path: file for path, file in run.files.items() if not path.startswith(".tools")}
