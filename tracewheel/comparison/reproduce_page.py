"""A run beside the same run made again, as sections of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracewheel.comparison.document import Section, Table

Found = Mapping[str, Any]
FILES_SHOWN = 6


def title_of(found: Found) -> str:
    """The page's title."""
    return f"Run {found['run']} made again: {found['says']}"


def sections_of(found: Found) -> list[Section]:
    """What `tracewheel runs reproduce` found, in sections."""
    rows = [
        [
            item["label"],
            item["state"],
            item["before"][:12],
            item["after"][:12] or "–",
            *(_seconds(value) for value in item["seconds"]),
        ]
        for item in found["stages"]
    ]
    headings = ("stage", "outcome", "digest", "digest again", "seconds", "seconds again")
    sections = [Section("Stages, in the order of the run", parts=[Table(headings, rows)])]
    if parted := [item for item in found["stages"] if item["files"] or item["state"] == "not made"]:
        sections.insert(0, _first(parted[0], found))
    elif other := [item["label"] for item in found["stages"] if item["same_key"] is False]:
        changed = f"Made by other code, settings or packages than in the run, with the same output: {', '.join(other)}."
        sections.insert(0, Section("What differs all the same", [changed, *(f"{why}." for why in found["why"])]))
    if found["notes"]:
        sections.append(Section("What it was made with", found["notes"]))
    if found["verdict"] != "equal":
        sections.append(Section("Where to look", [f"The run that was made again is in {found['folder']}."]))
    return sections


def _first(item: Found, found: Found) -> Section:
    """The first stage that is not equal: what differs in it, and why."""
    sentences = [f"Why, as far as it is known: {why}" for why in found["why"]]
    if item["state"] == "not made":
        return Section(f"The first stage that differs: {item['label']}", ["It was not made.", *sentences])
    if item["same_key"] is False:
        sentences.insert(0, "It was made by other code, settings or packages, or from other inputs, than in the run.")
    elif item["same_key"]:
        sentences.insert(0, "It was made by the same code and from the same inputs as in the run.")
    if item["tolerance"]:
        sentences.append(f"Tolerance of this stage: {item['tolerance']}.")
    rows = [_file(file) for file in item["files"][:FILES_SHOWN]]
    table = Table(("file", "first place", "in the run", "made again", "values", "largest difference"), rows)
    return Section(f"The first stage that differs: {item['label']} ({item['state']})", sentences, [table])


def _file(file: Found) -> list[str]:
    if file["same_values"]:
        return [file["file"], "the same values, written otherwise", "", "", "", ""]
    count = str(file["count"] or "") + (f" of {file['of']}" if file["of"] else "")
    largest = "–" if file["largest"] is None else f"{file['largest']:.3g}"
    return [file["file"], file["place"], file["before"], file["after"], count, largest]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
