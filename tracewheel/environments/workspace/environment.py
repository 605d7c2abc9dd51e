"""The workspace: an in-memory file tree that an agent tidies with five tools."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.types import Task, content_hash
from tracewheel.environments.base import Observation, function_tool, play_calls, spread_tasks
from tracewheel.environments.workspace.agent import Call, manifest_call, move_call, solution, walk
from tracewheel.environments.workspace.tasks import (
    EXTENSIONS,
    FAMILIES,
    MANIFEST_NAME,
    PROMPTS,
    STEM_GROUPS,
    WORDS,
    make_task,
    selected_files,
    workspace_task,
)

SELECTABLE = {"pattern": EXTENSIONS, "prefix": STEM_GROUPS, "content": WORDS}
NAMED = (
    "Move the files {value} from {source} to {destination}, then write {manifest} listing them.",
    "Please take {value} in {source} over to {destination} and record them in {manifest}.",
)


def task_reached(task: Task, final_state: dict[str, Any]) -> Task | None:
    """The task on the same files whose goal `final_state` fulfils, or None.

    Files must have moved from one folder to another, one manifest must list exactly them, and nothing else may have
    changed. The goal is a selector of the task's own family that picks exactly these files, or else lists their names.
    Other families are not considered: an episode that never read a file does not show how to find content in files.
    """
    before, after = task.initial_state["files"], final_state["files"]
    gone = {path: text for path, text in before.items() if path not in after}
    changed = {path: text for path, text in after.items() if before.get(path) != text}
    sources = {path.rpartition("/")[0] for path in gone}
    if not final_state.get("finished") or len(sources) != 1 or len(changed) != len(gone) + 1:
        return None
    (source,) = sources
    names = sorted(path.rpartition("/")[2] for path in gone)
    found = [path for path, text in changed.items() if listed_names(text) == names]
    if len(found) != 1 or found[0] in before:
        return None
    manifest = found[0]
    landed = {path: text for path, text in changed.items() if path != manifest}
    destinations = {path.rpartition("/")[0] for path in landed}
    if len(destinations) != 1:
        return None
    (destination,) = destinations
    if landed != {f"{destination}/{path.rpartition('/')[2]}": text for path, text in gone.items()}:
        return None
    for selector in _selectors(task, names):
        goal = {"selector": selector, "source": source, "destination": destination, "manifest": manifest}
        if selected_files(task.initial_state, goal) == names:
            return workspace_task(_prompt(task, goal), task.initial_state, goal) if goal != task.goal else None
    return None


def _selectors(task: Task, names: list[str]) -> Iterator[dict[str, str]]:
    for value in SELECTABLE.get(task.family, (task.goal["selector"]["value"],)):
        yield {"kind": task.family, "value": value}
    yield {"kind": "names", "value": ", ".join(names)}


def listed_names(text: str) -> list[str] | None:
    """The sorted names in a manifest; None for a text that is no JSON list of names."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return sorted(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _prompt(task: Task, goal: dict[str, Any]) -> str:
    """Phrase the goal with the wording of the task's prompt, or with the first wording."""
    phrased = [_worded(wording, task.goal) for wording in PROMPTS[task.family]]
    wordings = NAMED if goal["selector"]["kind"] == "names" else PROMPTS[task.family]
    return _worded(wordings[phrased.index(task.prompt) if task.prompt in phrased else 0], goal)


def _worded(wording: str, goal: dict[str, Any]) -> str:
    return wording.format(
        value=goal["selector"]["value"], source=goal["source"], destination=goal["destination"], manifest=goal["manifest"]
    )


FINISH: Call = ("finish", {})


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that almost solve the task, by what is wrong with them."""
    goal, moves = task.goal, walk(task)
    source, destination = goal["source"], goal["destination"]
    names = selected_files(task.initial_state, goal)
    held = sorted(path.removeprefix(f"{source}/") for path in task.initial_state["files"] if path.startswith(f"{source}/"))
    spared = [name for name in held if name not in names]
    manifest = manifest_call(task, names)

    def wrote(content: str, path: str = goal["manifest"]) -> list[Call]:
        return [*moves, ("write_file", {"path": path, "content": content}), FINISH]

    def unmoved(name: str) -> list[Call]:
        return [call for call in moves if call != move_call(source, name, destination)]

    listed = json.dumps(names)
    found = {
        "extra_change": [*moves, manifest, ("write_file", {"path": f"{destination}/more.txt", "content": "more"}), FINISH],
        "changed_text": [*moves, manifest, ("write_file", {"path": f"{destination}/{names[0]}", "content": "other"}), FINISH],
        "half_done": [*unmoved(names[-1]), manifest, FINISH],
        "no_manifest": [*moves, FINISH],
        "wrong_type": wrote(json.dumps(", ".join(names))),
        "wrong_form": wrote("\n".join(names)),
        "wrong_place": wrote(listed, f"{source}/{MANIFEST_NAME}"),
        "named_twice": wrote(json.dumps([*names, names[0]])),
        "one_too_few": wrote(json.dumps(names[1:])),
        "full_paths": wrote(json.dumps([f"{destination}/{name}" for name in names])),
        "told_only": [manifest, FINISH],
    }
    if spared:
        found["lists_all"] = wrote(json.dumps(held))
        found["moved_all"] = [*moves, *(move_call(source, name, destination) for name in spared), manifest, FINISH]
    return found


SYSTEM_PROMPT = "You are a file-management agent."
ECHO_LIMIT = 64
EMPTY_FOLDER = "(empty)"
MOVE = "move_file"


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    return function_tool(name, description, {key: {"type": "string", "description": text} for key, text in parameters.items()})


TOOLS = [
    _tool("list_files", "Lists the names of the files in a folder.", path="The folder."),
    _tool("read_file", "Returns the text of a file.", path="The file."),
    _tool(
        MOVE,
        "Moves a file into a folder and lists what is left where it was.",
        source="The file.",
        destination="The folder to move it into.",
    ),
    _tool(
        "write_file",
        "Writes a text file, replacing what was there.",
        path="The file.",
        content="Its new text.",
    ),
    _tool("finish", "Ends the work."),
]
REQUIRED = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class WorkspaceEnvironment:
    """File tree with folders one level deep; paths look like `/inbox/inv1.log`.

    >>> import random
    >>> from tracewheel.environments.workspace.tasks import FAMILIES, make_task
    >>> tree = WorkspaceEnvironment()
    >>> tree.reset(make_task(list(FAMILIES)[0], 1, random.Random(0)))
    >>> tree.step("list_files", {"path": "/nowhere"}).error
    True

    State: `{"folders": [path], "files": {path: text}, "finished": bool}`, and with lost moves `moves`, how many were made. A
    call that fails changes nothing; its observation says why.

    A lost move has no effect, and its reply lists what is there, as always. Which moves of a task are lost depends on the seed
    alone, so an episode can be repeated. They are meant for training (`rollout.exploration.environment_args`): a policy that
    looks moves the file again, one that counts its moves fails.

    Args:
        lost_moves: The share of moves that are lost, below 1.
        noise_seed: Chooses which.

    Raises:
        ConfigError: the share is not from 0 to below 1, or the seed is no whole number.
    """

    kind = "workspace"
    tool_threads = 0  # calls take no time
    verifiers = ("workspace",)
    system_prompt = SYSTEM_PROMPT
    families = FAMILIES
    tiers = (1, 2, 3, 4, 5)

    def __init__(self, lost_moves: float = 0.0, noise_seed: int = 0) -> None:
        if type(lost_moves) not in (int, float) or not 0.0 <= lost_moves < 1.0:
            raise ConfigError(f"environment 'workspace': args.lost_moves: {lost_moves!r} is no share from 0 to below 1")
        if type(noise_seed) is not int:
            raise ConfigError(f"environment 'workspace': args.noise_seed: {noise_seed!r} is no whole number")
        self._lost_moves, self._noise_seed = lost_moves, noise_seed
        self._task_print = ""
        self._moves = 0
        self._folders: set[str] = set()
        self._files: dict[str, str] = {}
        self._finished = False

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state, goal = logged.get("initial_state"), logged.get("goal")
        if not isinstance(state, dict) or not _is_texts(state.get("folders")) or not _is_text_map(state.get("files")):
            raise DataError("'initial_state' needs 'folders' (a list of paths) and 'files' (path to text)")
        if not isinstance(goal, dict) or not _is_texts([goal.get(key) for key in ("source", "destination", "manifest")]):
            raise DataError("'goal' needs 'source', 'destination' and 'manifest'")
        selector = goal.get("selector")
        if not isinstance(selector, dict) or selector.get("kind") not in FAMILIES or not isinstance(selector.get("value"), str):
            raise DataError(f"'goal.selector' needs a 'value' and a 'kind', one of {', '.join(FAMILIES)}")
        if selector["kind"] == "list" and selector["value"] not in state["files"]:
            raise DataError(f"the list {selector['value']} is not among the files")
        return workspace_task(prompt, state, goal)

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Tasks of all families; tier n moves n files."""
        return spread_tasks(make_task, self.families, self.tiers, n, seed)

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family and content word, of the same tier or the one below."""
        rng = random.Random(f"variants-{task.id}-{seed}")
        asked = (task.goal["selector"]["value"],)
        return [make_task(task.family, rng.randint(max(1, task.tier - 1), task.tier), rng, asked=asked) for _ in range(n)]

    def task_reached(self, task: Task, final_state: dict[str, Any]) -> Task | None:
        """The task of the same family that the state solves."""
        return task_reached(task, final_state)

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The calls that solve the task in the most direct way; a move that is lost is made again."""
        calls: list[tuple[str, dict[str, Any]]] = []
        moves = 0
        for call in solution(task):
            calls.append(call)
            if call[0] != MOVE:
                continue
            moves += 1
            while self._loses(task.fingerprint, moves):
                calls.append(call)
                moves += 1
        return calls

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Calls that almost solve the task."""
        return {name: list(calls) for name, calls in near_misses(task).items()}

    def outcome(self, task: Task, state: dict[str, Any]) -> Any:
        """The files and folders; the order of a manifest's names and whether the work was ended do not count."""
        files, manifest = state["files"], task.goal["manifest"]
        names = listed_names(files[manifest]) if manifest in files else None
        shown = files if names is None else {**files, manifest: names}
        return [shown, sorted(state["folders"])]

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._folders = set(task.initial_state["folders"])
        self._files = dict(task.initial_state["files"])
        self._finished, self._task_print, self._moves = False, task.fingerprint, 0

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        self.reset(task)
        if (
            not _is_texts(state.get("folders"))
            or not _is_text_map(state.get("files"))
            or type(state.get("finished")) is not bool
        ):
            raise DataError("a workspace's snapshot has 'folders' (a list), 'files' (path to text) and 'finished'")
        self._folders, self._files, self._finished = set(state["folders"]), dict(state["files"]), state["finished"]
        if self._lost_moves:
            if type(state.get("moves")) is not int:
                raise DataError("the snapshot of a workspace with lost moves has 'moves', a number")
            self._moves = state["moves"]

    def snapshot(self) -> dict[str, Any]:
        return {
            "folders": sorted(self._folders),
            "files": dict(sorted(self._files.items())),
            "finished": self._finished,
            **({"moves": self._moves} if self._lost_moves else {}),
        }

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        required = REQUIRED.get(tool)
        if required is None:
            return _error("no tool named", tool)
        if args.keys() != required.keys():
            return _error("arguments must be", ", ".join(required) or "none")
        if not all(isinstance(value, str) for value in args.values()):
            return _error("arguments must be", "strings")
        return getattr(self, f"_{tool}")(**args)

    def _list_files(self, path: str) -> Observation:
        folder = path.rstrip("/")
        if folder not in self._folders:
            return _error("no such folder", path)
        return Observation(self._listing(folder))

    def _read_file(self, path: str) -> Observation:
        if path not in self._files:
            return _error("no such file", path)
        return Observation(self._files[path])

    def _move_file(self, source: str, destination: str) -> Observation:
        if source not in self._files:
            return _error("no such file", source)
        folder = destination.rstrip("/")
        if folder not in self._folders:
            return _error("no such folder", destination)
        origin, name = source.rsplit("/", 1)
        target = f"{folder}/{name}"
        if target in self._files:
            return _error("a file is already at", target)
        self._moves += 1
        if not self._loses(self._task_print, self._moves):
            self._files[target] = self._files.pop(source)
        return Observation(self._listing(origin))

    def _loses(self, task: str, move: int) -> bool:
        """Whether a move of the task with this fingerprint, counted from 1, has no effect."""
        if not self._lost_moves:
            return False
        return random.Random(content_hash(["lost move", self._noise_seed, task, move])).random() < self._lost_moves

    def _write_file(self, path: str, content: str) -> Observation:
        folder, _, name = path.rpartition("/")
        if folder not in self._folders or not name:
            return _error("no such folder", path)
        self._files[path] = content
        return Observation("ok")

    def _finish(self) -> Observation:
        self._finished = True
        return Observation("done", done=True)

    def _listing(self, folder: str) -> str:
        prefix = folder + "/"
        names = [path.removeprefix(prefix) for path in self._files if path.startswith(prefix)]
        return "\n".join(sorted([name for name in names if "/" not in name])) or EMPTY_FOLDER


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _error(what: str, which: str) -> Observation:
    return Observation(f"error: {what} {which[:ECHO_LIMIT]}", error=True)


def play(task: Task, calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Execute calls, one a turn, in a fresh workspace, and return the episode as OpenAI chat messages.

    The episode ends with `finish`, whose reply is not logged.
    """
    return play_calls(WorkspaceEnvironment(), task, calls)
