"""Reads commits of a repository that someone else made.

Of the repository only its objects are used: they are copied into an empty repository of ours. So its config, hooks, filters,
attributes, replaced objects, grafts, alternates and remotes say nothing, and nothing is written to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tracewheel import ConfigError, DataError, ForeignFolder

OBJECT_FILE = re.compile(r"[0-9a-f]{2}/([0-9a-f]{38}|[0-9a-f]{62})|pack/pack-([0-9a-f]{40}|[0-9a-f]{64})\.(pack|idx)")
MOST_OBJECT_FILES, MOST_OBJECT_BYTES = 200_000, 2 << 30
MOST_FILES, MOST_BYTES = 20_000, 256 << 20  # of a commit
GIT_SECONDS, GIT_MEMORY_KB = 60, 2 << 20
LIMITED = 'ulimit -c 0 && ulimit -v "$1" && ulimit -f "$2" && shift 2 && exec git "$@"'
CONFIG = """[core]
	repositoryformatversion = 1
	bare = true
	packedGitWindowSize = 64m
	packedGitLimit = 512m
[extensions]
	objectFormat = {}
"""


class GitObjects:
    """The objects of a repository, in a folder of ours."""

    def __init__(self, place: Path, about: str) -> None:
        self._place, self._about = place, about

    def files(self, commit: str) -> dict[str, bytes]:
        """The regular files of a commit; links and submodules are left out.

        Args:
            commit: Hexadecimal, whole or the beginning.

        Raises:
            DataError: there is no such commit among the objects, or it is too large.
        """
        found = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        if found is None:
            raise DataError(
                f"commit {commit} is not in {self._about}: it is missing or ambiguous, or its objects are elsewhere "
                "(alternates, links and remotes are not followed; `git repack -a -d` brings those of alternates)"
            )
        listed = self._git("ls-tree", "-r", "-z", "--full-tree", found.decode().strip())
        entries = [entry.partition(b"\t") for entry in (listed or b"").split(b"\0")[:-1]]
        blobs = {name: about.split()[2] for about, _, name in entries if about.startswith(b"100")}
        if listed is None or len(blobs) > MOST_FILES:
            raise DataError(f"commit {commit} of {self._about} is damaged, or holds more than {MOST_FILES} files")
        contents = self._contents(sorted(set(blobs.values())))
        if contents is None:
            raise DataError(
                f"commit {commit} of {self._about} lacks objects, or its files take more than {MOST_BYTES >> 20} MB"
            )
        return {_name(name): contents[blob] for name, blob in blobs.items()}

    def _contents(self, blobs: list[bytes]) -> dict[bytes, bytes] | None:
        """What blobs hold; None where one is missing, or they are too large together."""
        said = self._git("cat-file", "--batch", given=b"".join(blob + b"\n" for blob in blobs))
        found: dict[bytes, bytes] = {}
        at = 0
        for blob in blobs if said is not None else ():
            assert said is not None
            name, kind, size = (*said[at : said.find(b"\n", at)].split(), b"", b"")[:3]
            if (name, kind) != (blob, b"blob"):
                return None
            start = said.index(b"\n", at) + 1
            at = start + int(size) + 1
            found[blob] = said[start : at - 1]
        return found if said is not None else None

    def _git(self, *arguments: str, given: bytes = b"") -> bytes | None:
        """What a command of git writes; None where it fails, or takes too much time, memory or output."""
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._place),
            "LC_ALL": "C",
            "GIT_DIR": str(self._place),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
        }
        limits = (str(GIT_MEMORY_KB), str((MOST_BYTES >> 9) + 1))
        with tempfile.TemporaryFile() as out:
            try:
                done = subprocess.run(
                    ["sh", "-c", LIMITED, "git", *limits, *arguments],
                    input=given,
                    stdout=out,
                    stderr=subprocess.DEVNULL,
                    cwd=self._place,
                    env=variables,
                    timeout=GIT_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None
            out.seek(0)
            return out.read() if done.returncode == 0 else None


@contextlib.contextmanager
def git_objects(repository: ForeignFolder) -> Iterator[GitObjects]:
    """The objects of a repository, until the block ends.

    Raises:
        ConfigError: git is not there.
        DataError: it is no repository of its own, or too large.
    """
    if shutil.which("git") is None:
        raise ConfigError("tasks from repositories need git: apt-get install git")
    inside = repository.sub(".git") if repository.holds(".git") else repository
    objects = inside.sub("objects")
    names = [name for name in objects.listing(MOST_OBJECT_FILES) if OBJECT_FILE.fullmatch(name)]
    with tempfile.TemporaryDirectory(prefix="tracewheel-objects-") as folder:
        place = Path(folder)
        left = MOST_OBJECT_BYTES
        for name in names:
            copy = place / "objects" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            with objects.opened(name, left) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            left -= copy.stat().st_size
        place.joinpath("objects").mkdir(exist_ok=True)
        place.joinpath("refs").mkdir()
        place.joinpath("HEAD").write_text("ref: refs/heads/none\n")
        place.joinpath("config").write_text(CONFIG.format("sha256" if any(len(name) > 60 for name in names) else "sha1"))
        yield GitObjects(place, repository.inside or str(repository.root))


def _name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise DataError(f"the name of a file is no UTF-8: {name!r}") from None
