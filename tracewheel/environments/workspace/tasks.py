"""Tasks of the workspace: four families, tiers by the number of files to move.

A task asks to move the files that a selector picks from one folder to another, then to write a manifest that lists them.
The selector is a file extension, a name prefix, a list in a file, or a word in the content. Tier n moves n files.
"""

from __future__ import annotations

import random
from typing import Any

from tracewheel.core.types import Task, content_hash

FAMILIES = ("pattern", "prefix", "list", "content")
STEM_GROUPS = ("inv", "ord", "tax", "memo", "plan", "scan", "bill", "note")
STEMS = tuple(f"{group}{number}" for group in STEM_GROUPS for number in range(1, 6))
EXTENSIONS = (".log", ".txt", ".csv", ".pdf", ".md", ".bak")
SOURCES = ("/inbox", "/intake", "/queue", "/drop")
DESTINATIONS = ("/archive", "/vault", "/store", "/done")
WORDS = ("urgent", "paid", "draft", "void", "final", "spam")
ASKED_WORDS = ("urgent",)
LIST_PATH = "/list.txt"
MANIFEST_NAME = "manifest.json"

PROMPTS = {
    "pattern": (
        "Move all files matching *{value} from {source} to {destination}, then write {manifest} listing them.",
        "Please take every *{value} file in {source} over to {destination} and record them in {manifest}.",
    ),
    "prefix": (
        "Move all files starting with {value} from {source} to {destination}, then write {manifest} listing them.",
        "Please take every file named {value}... in {source} over to {destination} and record them in {manifest}.",
    ),
    "list": (
        "Move the files named in {value} from {source} to {destination}, then write {manifest} listing them.",
        "Please take what {value} lists in {source} over to {destination} and record them in {manifest}.",
    ),
    "content": (
        "Move all files containing the word {value} from {source} to {destination}, then write {manifest} listing them.",
        "Please take every file in {source} that says {value} over to {destination} and record them in {manifest}.",
    ),
}


def selected_files(initial_state: dict[str, Any], goal: dict[str, Any]) -> list[str]:
    """Sorted names of the files that the goal asks to move."""
    kind, value = goal["selector"]["kind"], goal["selector"]["value"]
    prefix = goal["source"] + "/"
    files = {p[len(prefix) :]: text for p, text in initial_state["files"].items() if p.startswith(prefix)}
    match kind:
        case "pattern":
            chosen = [name for name in files if name.endswith(value)]
        case "prefix":
            chosen = [name for name in files if name.startswith(value)]
        case "list":
            chosen = [name for name in initial_state["files"][value].split("\n") if name in files]
        case "content":
            chosen = [name for name, text in files.items() if value in text.split()]
        case "names":  # not a task family: describes a final state that no family's selector fits
            chosen = [name for name in value.split(", ") if name in files]
        case _:
            raise ValueError(f"no selector of kind {kind!r}")
    return sorted(chosen)


def make_task(
    family: str, tier: int, rng: random.Random, spared: int | None = None, asked: tuple[str, ...] = ASKED_WORDS
) -> Task:
    """A random task of a family that moves `tier` of `tier + spared` files; `spared` is one or two by default.

    `asked` are the words that a task of the content family may look for.
    """
    n_files = tier + (rng.choice((1, 2)) if spared is None else spared)
    source, destination = rng.choice(SOURCES), rng.choice(DESTINATIONS)
    value, names = _names_for(family, tier, n_files, rng, asked)
    words = _words_for(family, value, tier, n_files, rng)
    files = {f"{source}/{name}": word for name, word in zip(names, words, strict=True)}
    if family == "list":
        listed = names[:tier]
        rng.shuffle(listed)
        files[LIST_PATH] = "\n".join(listed)
    initial_state = {"folders": sorted((source, destination, "")), "files": dict(sorted(files.items()))}
    goal = {
        "selector": {"kind": family, "value": value},
        "source": source,
        "destination": destination,
        "manifest": f"{destination}/{MANIFEST_NAME}",
    }
    wording = rng.choice(PROMPTS[family])
    prompt = wording.format(value=value, source=source, destination=destination, manifest=goal["manifest"])
    return workspace_task(prompt, initial_state, goal)


def workspace_task(prompt: str, initial_state: dict[str, Any], goal: dict[str, Any]) -> Task:
    """Make a task from its parts; family, tier and fingerprint follow from them.

    The fingerprint ignores the wording: the same goal on the same files is the same task.
    """
    fingerprint = content_hash({"state": initial_state, "goal": goal})
    return Task(
        id=f"workspace-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="workspace",
        family=goal["selector"]["kind"],
        tier=len(selected_files(initial_state, goal)),
        prompt=prompt,
        initial_state=initial_state,
        goal=goal,
        verifier="workspace",
        fingerprint=fingerprint,
    )


def _names_for(family: str, tier: int, n_files: int, rng: random.Random, asked: tuple[str, ...]) -> tuple[str, list[str]]:
    """The selector's value and `n_files` names, of which it picks the first `tier`."""
    pool = [(stem, extension) for stem in STEMS for extension in EXTENSIONS]
    rng.shuffle(pool)
    match family:
        case "pattern":
            value = rng.choice(EXTENSIONS)
            fits = [pair for pair in pool if pair[1] == value]
            others = [pair for pair in pool if pair[1] != value]
        case "prefix":
            value = rng.choice(STEM_GROUPS)
            fits = [pair for pair in pool if pair[0].startswith(value)]
            others = [pair for pair in pool if not pair[0].startswith(value)]
        case "list":
            value, fits, others = LIST_PATH, pool[:tier], pool[tier:]
        case _:
            value, fits, others = rng.choice(asked), pool[:tier], pool[tier:]
    stems: set[str] = set()
    chosen: list[str] = []
    for wanted, candidates in ((tier, fits), (n_files, others)):
        for stem, extension in candidates:
            if len(chosen) == wanted:
                break
            if stem not in stems:
                stems.add(stem)
                chosen.append(stem + extension)
    return value, chosen


def _words_for(family: str, value: str, tier: int, n_files: int, rng: random.Random) -> list[str]:
    if family != "content":
        return [rng.choice(WORDS) for _ in range(n_files)]
    others = [word for word in WORDS if word != value]
    return [value] * tier + [rng.choice(others) for _ in range(n_files - tier)]
