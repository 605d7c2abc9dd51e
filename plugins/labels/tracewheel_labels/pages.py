"""Labels on the dashboard: the queue and the labels on a run's page Review, and the form on the page of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel import Ask, Tab, form, page, sources_of
from tracewheel_labels.labels import LABELS, WITHDRAWN, Label, add_label, between_people, calibrate, counts, labels_of
from tracewheel_labels.queue import REASONS, check_place, queue_of, scores_at

MOST_SHOWN = 100
TEMPLATES = Path(__file__).parent / "templates"
EPISODE = "/runs/{place}/{run_id}/episodes/{entry}/{part}/{trajectory}"
NO_PART = "-"  # in an address, of a result without parts


@page("/runs/{place}/{run_id}/review", "labels.html", folder=TEMPLATES, is_inset=True)
def of_run(ask: Ask) -> dict[str, Any]:
    """The queue and the labels of a run."""
    labels = labels_of(ask.run.record.path)
    by_place: dict[tuple[str, str, str], list[Label]] = {}
    for each in labels:
        by_place.setdefault(each.place, []).append(each)
    several, agreeing = between_people(labels)
    return {
        "folder": ask.run.record.path,
        "queue": queue_of(ask.run),
        "reasons": REASONS,
        "labels": labels[::-1][:MOST_SHOWN],
        "counts": counts(labels),
        "by_place": by_place,
        "agreement": calibrate(labels, scores_at(ask.run, labels)),
        "several": several,
        "agreeing": agreeing,
        "sources": {(one.entry, one.part): one.label for one in sources_of(ask.run)},
    }


@page(EPISODE, "label_form.html", tab=Tab("Label it", "label", 0), folder=TEMPLATES, is_inset=True)
def of_episode(ask: Ask) -> dict[str, Any]:
    """The form for an episode, with what people have said of it."""
    entry, part, trajectory = (ask.path[name] for name in ("entry", "part", "trajectory"))
    place = entry, "" if part == NO_PART else part, trajectory
    return {
        "place": place,
        "labels": [label for label in labels_of(ask.run.record.path) if label.place == place],
        "choices": LABELS,
        "withdrawn": WITHDRAWN,
        "why": ask.query.get("why", ""),
    }


@form("/runs/{place}/{run_id}/label")
def label(ask: Ask, fields: Mapping[str, str]) -> str:
    """Keep a label; back to the review."""
    given = {name: fields.get(name, "") for name in ("entry", "part", "trajectory", "label", "who", "note", "why")}
    said = Label(**{**given, "why": given["why"] if given["why"] in REASONS else ""}, at=ask.at)
    check_place(ask.run, said.place)
    add_label(ask.run.record.path, said)
    return ask.address("review")
