"""A folder that lives from one box to the next: what environments share whose tools run in a sandbox."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tracewheel import Count, DataError, Observation, Strict
from tracewheel_worlds.box_state import StoredFile, box_files, check_path, state_bytes, stored_file, without_caches
from tracewheel_worlds.sandbox import BoxFile, BoxRun, Sandbox, SandboxConfig, make_sandbox

ECHO_LIMIT = 60
BOXED_THREADS = 8  # a command may take seconds: other episodes do not wait for it
# Where an honest link may lead: a virtual environment has links to `/usr/bin`.
HONEST_TARGETS = re.compile(r"/(usr|bin|sbin|lib|lib64|opt|tmp|box|dev/null)(/|$)")
LONGEST_LINK = 200


class BoxedArgs(Strict):
    """Where an agent's code runs, and how much it may keep and read.

    `state_bytes` and `state_files` are the most that an episode's files may take, as a state is stored with each trajectory;
    `output_characters` is the most of a run's output that the agent is shown.
    """

    sandbox: SandboxConfig = SandboxConfig()
    state_bytes: Count = 262_144
    state_files: Count = 256
    output_characters: Count = 4000


class BoxedFolder:
    """The files of an episode. Each run is a box of its own that begins with them, and what it leaves is what there is then.

    Args:
        args: The limits.
        plain: Whether to keep files alone, without their permissions, links and empty folders.
        variables: Of each run.
    """

    def __init__(self, args: BoxedArgs, plain: bool, variables: Mapping[str, str]) -> None:
        self._args, self._plain, self._variables = args, plain, variables
        self._folders = args.sandbox.folders
        self._sandbox: Sandbox | None = None
        self.files: dict[str, BoxFile] = {}
        self.findings: list[str] = []

    def begin(self, files: Mapping[str, StoredFile], findings: Sequence[str] = ()) -> None:
        """Begin with these files.

        Raises:
            ValueError: they are not the JSON of files.
        """
        self.files, self.findings = box_files(files), [*findings]

    def restore(self, kind: str, state: Mapping[str, Any]) -> bool:
        """Take over a snapshot's files and findings, and say whether it was submitted.

        Raises:
            DataError: it is no snapshot.
        """
        try:
            self.begin(state["files"], [*map(str, state["findings"])])
            return bool(state["submitted"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"no snapshot of the environment {kind}: {type(error).__name__}: {error}") from None

    def snapshot(self, submitted: bool) -> dict[str, Any]:
        """The state as JSON."""
        files = {path: stored_file(file) for path, file in sorted(self.files.items())}
        return {"files": files, "findings": [*self.findings], "submitted": submitted}

    def change(self, files: dict[str, BoxFile]) -> str:
        """Take these files instead, or say what is wrong with them."""
        problem = ""
        if len(files) > self._args.state_files:
            problem = f"more than {self._args.state_files} files"
        elif state_bytes(files) > self._args.state_bytes:
            problem = f"files of more than {self._args.state_bytes} bytes"
        if not problem:
            self.files = files
        return problem

    def run(self, command: Sequence[str], stdin: str = "") -> Observation:
        """Run a command on the files; a run that fails is an observation with `error`.

        Raises:
            InfrastructureError: the box could not be made.
        """
        if self._sandbox is None:
            self._sandbox = make_sandbox(self._args.sandbox)
        given = stdin.encode(errors="replace")
        run = self._sandbox.run(command, self.files, given, keep=True, env=self._variables)
        note = self._keep(run)
        ending = f"exit status {run.exit_code}" if run.exit_code else ""
        lines = [self.shown(run.text).rstrip("\n"), ending, note]
        text = "\n".join(line for line in lines if line)
        return Observation(text or "no output", error=run.exit_code != 0 or bool(note))

    def shown(self, text: str) -> str:
        """A text cut in its middle where it is too long."""
        most = self._args.output_characters
        return text if len(text) <= most else f"{text[: most // 2]}\n[...]\n{text[len(text) - most // 2 :]}"

    def _keep(self, run: BoxRun) -> str:
        """Take over what a run left, and say what was wrong with it."""
        self.findings += [finding for finding in run.findings if finding not in self.findings]
        if run.exit_code is None or "destroyed" in run.findings:
            return f"killed ({', '.join(run.findings)}); the files are as before"
        left = without_caches(run.files)
        if "link" not in self.findings and any(leads_out(path, file, self._folders) for path, file in left.items()):
            self.findings.append("link")
        if self._plain:
            left = {path: BoxFile(file.content) for path, file in left.items() if not (file.link or file.folder)}
        try:
            for path, file in left.items():
                check_path(path)
                if file.link and not (file.link.isprintable() and len(file.link) <= LONGEST_LINK):
                    raise ValueError(f"{path}: a link has a target of printable characters")
            problem = self.change(left)
        except ValueError as error:
            problem = str(error)
        return f"{problem}; the files are as before" if problem else ""


def leads_out(path: str, file: BoxFile, folders: Sequence[str] = ()) -> bool:
    """Whether a file is a link to what is neither the box's nor the system's programs; `folders` lie at the root, too."""
    if not file.link:
        return False
    target = posixpath.normpath(posixpath.join("/box", posixpath.dirname(path), file.link))
    return not HONEST_TARGETS.match(target) and target.split("/")[1] not in folders


def wrong_call(tool: str, args: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """What is wrong with a call whose arguments are texts; "" where nothing is."""
    if tool not in parameters:
        return f"no tool named {tool[:ECHO_LIMIT]}"
    names = parameters[tool].keys()
    if args.keys() != names or not all(isinstance(value, str) for value in args.values()):
        return f"arguments must be {', '.join(names) or 'none'}{', each a text' if names else ''}"
    if any("\x00" in value or not _encodes(value) for value in args.values()):
        return "an argument has a zero byte or half of a surrogate pair"
    return ""


def failed(text: str) -> Observation:
    """The observation of a mistake."""
    return Observation(f"error: {text}", error=True)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
