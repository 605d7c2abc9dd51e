"""Generic tool-use text for the tiny base policy: single skills, and few complete episodes.

The skills are reading, copying and picking names, calling one tool, and applying a tool to a list. Complete episodes are a
small share, of some families only, so that the base has the skills but is not good at the tasks. Every example is a
conversation in OpenAI chat format from a seeded generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.workspace import tasks as words
from tracewheel.environments.workspace.agent import Call, manifest_call, move_call, solution, walk
from tracewheel.environments.workspace.environment import EMPTY_FOLDER, SYSTEM_PROMPT, TOOLS, play
from tracewheel.environments.workspace.tasks import make_task, workspace_task
from tracewheel_projects import World, chat_pieces, fixed_text

Conversation = list[dict[str, Any]]
LONGEST_LIST = 7
LONGEST_WALK = 6
LONGEST_COMPLETE = 4
INVENTED_TOOLS = ("copy_file", "search_files", "delete_file")
PHRASES = (
    "Do this: ",
    "List ",
    "Read ",
    "Move ",
    "Write ",
    " listing the files in ",
    " listing ",
    "Repeat: ",
    "Which of these match *",
    "Which of these start with ",
    "Which of these are in both: ",
    "What follows ",
    " says",
    "Sort: ",
    "? ",
    ": ",
    ", ",
    ". ",
    ".",
    "Archive the ",
    " files of ",
    " in ",
    " with a manifest.",
    " and ",
    " to ",
    " from ",
    "none",
    "ok",
    "done",
    EMPTY_FOLDER,
    "error: ",
    "error: no such file ",
    "error: no such folder ",
    "error: no tool named ",
    "error: arguments must be ",
    "error: malformed call ",
    "error: a file is already at ",
)


def pieces() -> set[str]:
    """The strings of the workspace that are one token each."""
    found = {*words.STEMS, *words.STEM_GROUPS, *words.EXTENSIONS, *words.SOURCES, *words.DESTINATIONS, *words.WORDS}
    found |= {words.LIST_PATH, f"/{words.MANIFEST_NAME}", "/", "\n", '", "', '"]', '["', '\\", \\"', '[\\"', '\\"]'}
    wordings = [wording for wordings in words.PROMPTS.values() for wording in wordings]
    return found | set(PHRASES) | set(fixed_text(wordings)) | set(chat_pieces(SYSTEM_PROMPT, TOOLS, INVENTED_TOOLS, "path"))


def complete(rng: random.Random, families: tuple[str, ...]) -> Conversation:
    """A complete episode of one of the families."""
    task = make_task(rng.choice(families), rng.randint(1, LONGEST_COMPLETE), rng)
    return play(task, solution(task))


def _names(rng: random.Random, count: int) -> list[str]:
    return [stem + rng.choice(words.EXTENSIONS) for stem in rng.sample(words.STEMS, count)]


def _answer(question: str, reply: str) -> Conversation:
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": question},
        {"role": "assistant", "content": reply},
    ]


def _repeat(rng: random.Random) -> Conversation:
    names = _names(rng, rng.randint(1, LONGEST_LIST))
    separator = rng.choice((", ", "\n"))
    return _answer("Repeat: " + separator.join(names), separator.join(names))


def _pick_by_extension(rng: random.Random) -> Conversation:
    names, wanted = _names(rng, rng.randint(2, LONGEST_LIST)), rng.choice(words.EXTENSIONS)
    names = [rng.choice((name, name.split(".")[0] + wanted)) for name in names]
    picked = [name for name in names if name.endswith(wanted)]
    return _answer(f"Which of these match *{wanted}? " + "\n".join(names), "\n".join(picked) or "none")


def _pick_by_prefix(rng: random.Random) -> Conversation:
    wanted = rng.choice(words.STEM_GROUPS)
    own = [stem for stem in words.STEMS if stem.startswith(wanted)]
    stems = {rng.choice((rng.choice(own), rng.choice(words.STEMS))) for _ in range(rng.randint(2, LONGEST_LIST))}
    names = [stem + rng.choice(words.EXTENSIONS) for stem in sorted(stems)]
    picked = [name for name in names if name.startswith(wanted)]
    return _answer(f"Which of these start with {wanted}? " + "\n".join(names), "\n".join(picked) or "none")


def _what_follows(rng: random.Random) -> Conversation:
    names = _names(rng, rng.randint(2, LONGEST_LIST))
    index = rng.randrange(len(names) - 1)
    return _answer(f"What follows {names[index]} in " + "\n".join(names) + "? ", names[index + 1])


def _folder_task(rng: random.Random, prompt: str, count: int) -> tuple[Task, list[str]]:
    """A folder with `count` files, and a prompt with {source}, {destination}, {manifest} filled in."""
    names = sorted(_names(rng, count))
    source, destination = rng.choice(words.SOURCES), rng.choice(words.DESTINATIONS)
    files = {f"{source}/{name}": rng.choice(words.WORDS) for name in names}
    goal = {
        "selector": {"kind": "prefix", "value": ""},
        "source": source,
        "destination": destination,
        "manifest": f"{destination}/{words.MANIFEST_NAME}",
    }
    state = {"folders": sorted(("", source, destination)), "files": files}
    text = prompt.format(source=source, destination=destination, manifest=goal["manifest"])
    return workspace_task(text, state, goal), names


def _list_folder(rng: random.Random) -> Conversation:
    task, _ = _folder_task(rng, "List {source}.", rng.randint(0, LONGEST_LIST))
    return play(task, [("list_files", {"path": task.goal["source"]}), ("finish", {})])


def _read_one(rng: random.Random) -> Conversation:
    task, names = _folder_task(rng, "Read {{name}}.", rng.randint(1, 4))
    path = f"{task.goal['source']}/{rng.choice(names)}"
    task = workspace_task(f"Read {path}.", task.initial_state, task.goal)
    return play(task, [("read_file", {"path": path}), ("finish", {})])


def _move_named(rng: random.Random) -> Conversation:
    task, names = _folder_task(rng, "", rng.randint(2, LONGEST_LIST + 1))
    chosen = rng.sample(names, rng.randint(1, len(names) - 1))
    source, destination = task.goal["source"], task.goal["destination"]
    prompt = f"Move {', '.join(chosen)} from {source} to {destination}."
    task = workspace_task(prompt, task.initial_state, task.goal)
    return play(task, [*(move_call(source, name, destination) for name in chosen), ("finish", {})])


def _move_everything(rng: random.Random) -> Conversation:
    task, names = _folder_task(rng, "Move {source} to {destination}.", rng.randint(1, LONGEST_LIST))
    source, destination = task.goal["source"], task.goal["destination"]
    calls: list[Call] = [("list_files", {"path": source})]
    return play(task, [*calls, *(move_call(source, name, destination) for name in names), ("finish", {})])


def _read_everything(rng: random.Random) -> Conversation:
    task, names = _folder_task(rng, "Read {source}.", rng.randint(1, LONGEST_LIST))
    source = task.goal["source"]
    calls: list[Call] = [("list_files", {"path": source})]
    return play(task, [*calls, *(("read_file", {"path": f"{source}/{name}"}) for name in names), ("finish", {})])


def _read_and_record(rng: random.Random) -> Conversation:
    """Read all files of a folder, then list them: a manifest late in a conversation."""
    prompt = "Read {source}. Write {manifest} listing the files in {source}."
    task, names = _folder_task(rng, prompt, rng.randint(1, LONGEST_LIST))
    source = task.goal["source"]
    listing: Call = ("list_files", {"path": source})
    reads: list[Call] = [("read_file", {"path": f"{source}/{name}"}) for name in names]
    return play(task, [listing, *reads, listing, manifest_call(task, names), ("finish", {})])


def _move_and_record(rng: random.Random) -> Conversation:
    """Move all files of a folder, then list the other folder."""
    prompt = "Move {source} to {destination}. Write {manifest} listing the files in {destination}."
    task, names = _folder_task(rng, prompt, rng.randint(1, LONGEST_LIST))
    source, destination = task.goal["source"], task.goal["destination"]
    moves = [move_call(source, name, destination) for name in names]
    looks: list[Call] = [("list_files", {"path": source}), ("list_files", {"path": destination})]
    return play(task, [looks[0], *moves, looks[1], manifest_call(task, names), ("finish", {})])


def _write_named(rng: random.Random) -> Conversation:
    names = sorted(_names(rng, rng.randint(1, LONGEST_LIST)))
    task, _ = _folder_task(rng, f"Write {{manifest}} listing {', '.join(names)}.", 1)
    return play(task, [manifest_call(task, names), ("finish", {})])


def _write_listing(rng: random.Random) -> Conversation:
    task, names = _folder_task(rng, "Write {manifest} listing the files in {source}.", rng.randint(1, LONGEST_LIST))
    return play(task, [("list_files", {"path": task.goal["source"]}), manifest_call(task, names), ("finish", {})])


def _move_selected(rng: random.Random) -> Conversation:
    """The moves of a complete episode, without its manifest and with another prompt."""
    return _walk_only(make_task(rng.choice(words.FAMILIES), rng.randint(1, LONGEST_WALK), rng, rng.randint(0, 3), words.WORDS))


def _move_asked(rng: random.Random) -> Conversation:
    """As `_move_selected`, with the content words of the tasks only, and more often by content than by name."""
    family = rng.choice((*words.FAMILIES, "content", "content"))
    return _walk_only(make_task(family, rng.randint(1, LONGEST_WALK), rng, rng.randint(0, 4)))


def _move_by_name(rng: random.Random) -> Conversation:
    """As `_move_selected`, by file names, most often by prefix."""
    family = rng.choice(("pattern", "prefix", "prefix", "list"))
    return _walk_only(make_task(family, rng.randint(1, LONGEST_WALK - 1), rng, rng.randint(0, 4)))


def _walk_only(task: Task) -> Conversation:
    value, source, destination = task.goal["selector"]["value"], task.goal["source"], task.goal["destination"]
    prompt = f"Archive the {value} files of {source} in {destination}."
    task = workspace_task(prompt, task.initial_state, task.goal)
    return play(task, [*walk(task), ("finish", {})])


SKILLS: dict[str, Callable[[random.Random], Conversation]] = {
    "repeat": _repeat,
    "what_follows": _what_follows,
    "list_folder": _list_folder,
    "read_one": _read_one,
    "pick_by_extension": _pick_by_extension,
    "pick_by_prefix": _pick_by_prefix,
    "move_named": _move_named,
    "move_everything": _move_everything,
    "read_everything": _read_everything,
    "write_named": _write_named,
    "write_listing": _write_listing,
    "move_selected": _move_selected,
    "move_asked": _move_asked,
    "move_by_name": _move_by_name,
    "read_and_record": _read_and_record,
    "move_and_record": _move_and_record,
}

WORLD = World(TOOLS, pieces, SKILLS, complete)
