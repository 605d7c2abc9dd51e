"""Finding what an address of an episode names: the stored result, its part, and the trajectory in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.dashboard.episodes import one_trajectory
from tracewheel.dashboard.library import NotThere, entry_path
from tracewheel.dashboard.sources import Source, sources_of
from tracewheel.dashboard.view import address

NO_PART = "-"


def source_at(run: FinishedRun, entry: str, part: str) -> Source:
    """The episodes of a stored result.

    Raises:
        NotThere: the run has no such result, or it holds no episodes.
    """
    entry_path(run, entry)
    wanted = "" if part == NO_PART else part
    for source in sources_of(run):
        if source.entry == entry and source.part == wanted:
            return source
    raise NotThere(f"{entry}: holds no episodes of the part {part!r}")


def trajectory_at(run: FinishedRun, name: str) -> tuple[Source, dict[str, Any]]:
    """A trajectory by `ENTRY/PART/ID`, as the page of two trajectories takes it.

    Raises:
        NotThere: it is not of that form, or there is none.
    """
    words = name.split("/")
    if len(words) != 3:
        raise NotThere(f"{name!r} names no trajectory; give ENTRY/PART/ID, with - for a result without parts")
    source = source_at(run, words[0], words[1])
    return source, one_trajectory(source, words[2])


def name_of(entry: str, part: str, trajectory: str) -> str:
    """`ENTRY/PART/ID`."""
    return f"{entry}/{part or NO_PART}/{trajectory}"


def episode_address(place: str, run_id: str, entry: str, part: str, trajectory: str, *more: str, **query: Any) -> str:
    """The address of a trajectory's page."""
    return address("runs", place, run_id, "episodes", entry, part or NO_PART, trajectory, *more, **query)


def rollouts_of(run: FinishedRun) -> dict[int, list[Source]]:
    """The stored rollouts of a run's own loop and its specialists', by iteration."""
    found: dict[int, list[Source]] = {}
    for source in sources_of(run):
        if source.kind == "rollout" and source.iteration is not None:
            found.setdefault(source.iteration, []).append(source)
    return found


def neighbours(names: list[Any], name: Any) -> Iterator[Any]:
    """What stands before and after a name in a list; None at its ends."""
    at = names.index(name) if name in names else -1
    yield names[at - 1] if at > 0 else None
    yield names[at + 1] if 0 <= at < len(names) - 1 else None
