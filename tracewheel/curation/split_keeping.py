"""Splits that stay: from the record of the last curation and all traces to the splits of this one, and their ledger.

| step | rule |
|---|---|
| sides | of components, for ever (`side_replay.py`); the first by quotas (`founding.py`) |
| rotation | held-out components are released to training (`curation.rotate`) |
| sets | the usable tasks of a side, those first that were there first, up to the size of the set; a share of a full set goes
  to tasks that were seen recently (`filled`) |
| ledger | what moved, why, and what is short |

With `split: temporal` the sets are drawn by time (`temporal.py`) from what was not trained (or selected) on earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, RESERVED_NIGHTS, TRAIN, VALIDATION
from tracewheel.curation.fitting import fit_by_time, found
from tracewheel.curation.side_replay import Components, TraceLinks, side_of
from tracewheel.curation.split_record import (
    RETIRED,
    SIDE_OF_SPLIT,
    SIDES,
    TASK,
    TEST,
    USE_OF_SPLIT,
    SplitRecord,
    State,
    identity_key,
)
from tracewheel.curation.splits import assign_by_time

if TYPE_CHECKING:
    import pandas


NOT_FROM_LOGS = (
    "the record of splits is lost, and which held-out tasks earlier runs have released to training is not in the logs{why};"
    " give an earlier curation or run with --earlier, or start in another work folder"
)
FITTED_TO = (
    "the record of splits is lost, and which logs the first sets were fitted to is not known; give an earlier curation or run"
    " with --earlier, start in another work folder, or, if the profile's sets were full in the first curation, set"
    " curation.counts to 'exact'"
)

STEP = 0.1  # how much of a full set turns over at once


@dataclass(frozen=True)
class Candidates:
    """The tasks of a curation.

    Attributes:
        usable: Task records that may be used, before `curation.filter`.
        kept: Those that the filter keeps, with `attempts` and `component`; for a split by time also `first_seen`, `last_seen`.
    """

    usable: pandas.DataFrame
    kept: pandas.DataFrame


@dataclass(frozen=True)
class KeptSplits:
    """The split of each kept task ("" for unused ones), the record for the next curation, the ledger, the settings that were
    fitted to the logs, and the reserve: tasks of the test side beyond its sets, those first that were there first.
    """

    split: pandas.Series
    record: SplitRecord
    ledger: dict[str, Any]
    fitted: dict[str, int] = field(default_factory=dict)
    reserve: list[str] = field(default_factory=list)


def keep_splits(links: TraceLinks, tasks: Candidates, config: CurationConfig, earlier: SplitRecord | None = None) -> KeptSplits:
    """Assign the splits.

    Args:
        links: All usable traces.
        tasks: Their tasks.
        config: Sizes, shares and rotation.
        earlier: The record of the curation before this one; None for the first.

    Raises:
        DataError: a set cannot be filled in the first curation, or is empty in a later one; or the record is lost and the
            logs cannot tell it.
    """
    return _Keeping(links, tasks, config, earlier or SplitRecord()).result()


class _Keeping:
    """One curation's splits."""

    def __init__(self, links: TraceLinks, tasks: Candidates, config: CurationConfig, earlier: SplitRecord) -> None:
        self._links, self._tasks, self._earlier = links, tasks, earlier
        self._fitted = earlier.fitted if config.counts == "auto" and config.split == "components" else {}
        self._config = config.model_copy(update=self._fitted)
        self._logs = content_hash(sorted(links.rows["id"]))
        self._grown = self._logs != earlier.logs
        self._number = earlier.number + self._grown
        self._codes = {task_id: code for code, task_id in links.tasks.items()}
        self._components = Components(links, earlier, self._number)
        self._places = {code: earlier.places[key] for code, key in self._task_keys() if key in earlier.places}
        self._next = max(earlier.places.values(), default=-1) + 1
        self._founding = self._next if earlier.founding is None else earlier.founding
        self._rotated: list[int] = []

    def result(self) -> KeptSplits:
        temporal = self._config.split == "temporal"
        if self._earlier.lost and (temporal or self._config.rotate):
            raise DataError(NOT_FROM_LOGS.format(why=" (a split by time does so each time)" if temporal else ""))
        if self._earlier.lost and self._config.counts == "auto":
            raise DataError(FITTED_TO)
        if temporal:
            split = self._by_time()
        else:
            self._place_components()
            self._rotate()
            split = self._fill()
        reserve = [] if temporal else self._reserve(split)
        record = self._record(split)
        return KeptSplits(split, record, self._ledger(split, record), self._fitted, reserve)

    def _task_keys(self) -> list[tuple[int, str]]:
        keys = self._links.keys
        return [(code, key) for code in self._links.tasks if (key := keys[code]) is not None]

    def _place_components(self) -> None:
        """Add all traces in the order of time: each component gets its side, each task its place."""
        begun = 0
        if not self._earlier.states:
            begun, chosen, self._fitted = found(self._components, self._links, self._tasks.usable, self._config)
            self._config = self._config.model_copy(update=self._fitted)
            self._put(self._codes[task_id] for task_id in chosen)
            self._put(self._links.codes[:begun, 0].tolist())
            self._founding = self._next
        for place, fingerprint in enumerate(self._links.rows["fingerprint"]):
            if place >= begun:
                self._components.add(place, side_of(str(fingerprint), self._config.shares))
        self._put(self._links.codes[:, 0].tolist())

    def _put(self, codes: Any) -> None:
        for code in codes:
            if code not in self._places:
                self._places[code] = self._next
                self._next += 1

    def _by_time(self) -> pandas.Series:
        for place in range(len(self._links.rows)):
            self._components.add(place)
        self._put(self._links.codes[:, 0].tolist())
        kept = self._tasks.kept
        states = [self._state(task_id) for task_id in kept["id"]]
        trained, selected = ([bool(getattr(state, name)) for state in states] for name in ("trained", "selected"))
        kept = kept.assign(trained=trained, selected=selected)
        if self._config.counts == "auto":
            split, self._fitted = self._fitted_by_time(kept)
        else:
            split = assign_by_time(kept, self._config)
        for task_id, own in zip(kept["id"], split, strict=True):
            if own:
                self._components.change(self._codes[task_id], side=SIDE_OF_SPLIT[own])
        return split

    def _fitted_by_time(self, kept: pandas.DataFrame) -> tuple[pandas.Series, dict[str, int]]:
        try:
            return assign_by_time(kept, self._config), {}
        except DataError:
            return fit_by_time(kept, self._config)

    def _state(self, task_id: str) -> State:
        return self._components.state(self._codes[task_id])

    def _candidates(self) -> dict[str, list[str]]:
        """The tasks that each set may take, in the order in which it takes them."""
        config = self._config
        found: dict[str, list[str]] = {TRAIN: [], VALIDATION: [], HELD_OUT: [], HARDER: []}
        kept = self._tasks.kept[["id", "tier", "attempts"]].itertuples(index=False, name=None)
        for task_id, tier, attempts in sorted(kept, key=lambda row: self._places[self._codes[row[0]]]):
            side = self._state(task_id).side
            if tier == config.tier_limit and side == TEST:
                found[HARDER].append(task_id)
            elif tier < config.tier_limit and (side != TRAIN or attempts >= config.min_attempts) and side != RETIRED:
                found[HELD_OUT if side == TEST else side].append(task_id)
        if config.harder_tasks and found[TRAIN]:
            # The harder tier is one above the hardest trained on: a task of that one stays in the set, whatever turns over.
            tiers = dict(zip(self._tasks.kept["id"], self._tasks.kept["tier"], strict=True))
            hardest = max(found[TRAIN], key=tiers.__getitem__)
            found[TRAIN].sort(key=lambda task_id: task_id != hardest)
        return found

    def _sizes(self) -> dict[str, int]:
        config = self._config
        return {
            TRAIN: config.train_tasks,
            VALIDATION: config.validation_tasks,
            HELD_OUT: config.held_out_tasks,
            HARDER: config.harder_tasks,
        }

    def _rotate(self) -> None:
        """Release the components that were held out longest to training, as far as others can take their places."""
        rotate = self._config.rotate
        if not (rotate and self._grown and self._number > 1 and self._number % rotate.every == 0):
            return
        sizes, candidates = self._sizes(), self._candidates()
        for task_id in self._codes:
            if self._state(task_id).side == RETIRED:
                self._components.change(self._codes[task_id], side=TRAIN)
        tests = {split: candidates[split] for split in (HELD_OUT, HARDER)}
        split_of = {task_id: split for split, ids in tests.items() for task_id in ids}
        spare = {split: len(ids) - sizes[split] for split, ids in tests.items()}
        left = max(1, round(rotate.share * sizes[HELD_OUT]))
        members: dict[int, list[str]] = {}
        for task_id in split_of:
            members.setdefault(self._components.root(self._codes[task_id]), []).append(task_id)
        oldest = sorted(members, key=lambda root: (self._components.state(root).tested, self._places_of(members[root])))
        for root in oldest:
            counts = Counter(split_of[task_id] for task_id in members[root])
            held = counts[HELD_OUT]
            if self._components.state(root).tested and 0 < held <= left and all(counts[name] <= spare[name] for name in counts):
                left -= held
                spare = {split: spare[split] - counts[split] for split in spare}
                self._components.change(root, side=TRAIN)
                self._rotated += [self._codes[task_id] for task_id in members[root]]

    def _places_of(self, task_ids: list[str]) -> int:
        return min(self._places[self._codes[task_id]] for task_id in task_ids)

    def _fill(self) -> pandas.Series:
        """The tasks of each set. Only the first curation must fill them all."""
        split_of: dict[str, str] = {}
        seen = self._seen_since()
        for split, candidates in self._candidates().items():
            if not candidates and self._sizes()[split]:
                raise DataError(
                    f"{split}: no task is left on its side that curation's settings allow; bring more logs, or lower"
                    " curation.min_attempts or loosen curation.filter"
                )
            split_of |= dict.fromkeys(filled(candidates, self._sizes()[split], self._config.recent_share, seen), split)
        return self._tasks.kept["id"].map(lambda task_id: split_of.get(task_id, ""))

    def _reserve(self, split: pandas.Series) -> list[str]:
        """Tasks that hang together with a held-out one would share the luck by which a candidate is chosen."""
        used = {self._components.root(self._codes[task_id]) for task_id in self._tasks.kept.loc[split != "", "id"]}
        candidates = self._candidates()[HELD_OUT]
        unused = [task_id for task_id in candidates if self._components.root(self._codes[task_id]) not in used]
        return unused[: RESERVED_NIGHTS * self._config.held_out_tasks]

    def _seen_since(self) -> list[str]:
        """The task of each trace from the first on whose task the first draw did not know, in the order of time."""
        newer = [self._places[code] >= self._founding for code in self._links.codes[:, 0].tolist()]
        return list(self._links.rows["task_id"])[newer.index(True) :] if any(newer) else []

    def _record(self, split: pandas.Series) -> SplitRecord:
        """The record after the tasks have been used as these splits say."""
        held = dict(self._earlier.held)
        for task_id, own in zip(self._tasks.kept["id"], split, strict=True):
            use = USE_OF_SPLIT.get(own)
            if use is None:
                continue
            if not getattr(self._state(task_id), use):
                self._components.change(self._codes[task_id], **{use: self._number})
            if use == "tested":
                held.setdefault(identity_key(TASK, task_id), self._number)
        states, kinds = dict(self._earlier.states), dict(self._earlier.kinds)
        for key, kind, state in self._components.states():
            states[key], kinds[key] = state, kind
        places = self._earlier.places | {key: self._places[code] for code, key in self._task_keys()}
        fitted = self._fitted if self._config.split == "components" else self._earlier.fitted
        founding = self._founding if self._config.split == "components" else self._earlier.founding
        founding = founding if founding is not None and founding < len(places) else None
        return SplitRecord(self._number, self._logs, states, kinds, places, held, fitted=fitted, founding=founding)

    def _ledger(self, split: pandas.Series, record: SplitRecord) -> dict[str, Any]:
        """What this curation did to the splits; counts are of tasks."""
        earlier = self._earlier
        here = dict(self._task_keys())
        sides = Counter(record.states[key].side for key in here.values())
        was = {key: (state, record.states[key]) for key, state in earlier.states.items() if earlier.kinds[key] == TASK}
        rotated = {here[code] for code in self._rotated}
        gave_way = [old for old, new in was.values() if old.side == TRAIN and new.side != TRAIN]
        retired = [key for key, (old, new) in was.items() if old.side != RETIRED and new.side == RETIRED]
        used = dict(zip(self._tasks.kept["id"], split, strict=True))
        first = {key for key, number in record.held.items() if number == min(record.held.values())}
        still = [own for task_id, own in used.items() if own in (HELD_OUT, HARDER) and identity_key(TASK, task_id) in first]
        counts = Counter(used.values())
        return {
            "number": record.number,
            "lost": earlier.lost,
            "sides": {side: sides[side] for side in SIDES},
            "new_tasks": len(set(here.values()) - earlier.states.keys()),
            "gone_tasks": len(was.keys() - set(here.values())),
            "gave_way": len(gave_way),
            "gave_way_trained": sum(old.trained > 0 for old in gave_way),
            "retired_held_out": sum(earlier.states[key].side == TEST for key in retired),
            "retired_validation": sum(earlier.states[key].side == VALIDATION for key in retired),
            "rotated": len(rotated),
            "short": {name: size - counts[name] for name, size in self._sizes().items() if counts[name] < size},
            "first_held_out": {"tasks": len(first), "still": len(still)},
            **({} if record.founding is None else {"newer": self._newer(split)}),
        }

    def _newer(self, split: pandas.Series) -> dict[str, int]:
        """How many tasks of each set the first draw did not know."""
        newer = Counter(
            own
            for task_id, own in zip(self._tasks.kept["id"], split, strict=True)
            if own and self._places[self._codes[task_id]] >= self._founding
        )
        return {name: newer[name] for name in self._sizes()}


def describe_ledger(ledger: dict[str, Any]) -> str:
    """The ledger in a sentence or three."""
    sides = ", ".join(f"{count} {side}" for side, count in ledger["sides"].items() if count or side != RETIRED)
    said = [f"Splits, curation {ledger['number']}: {ledger['new_tasks']} new tasks; by side {sides}."]
    if ledger["lost"]:
        said.append("The record was lost and is rebuilt from the logs: all of the training side counts as trained on.")
    if ledger["gave_way"]:
        said.append(
            f"{ledger['gave_way']} training tasks gave way to tasks of another side that new traces link them to;"
            f" {ledger['gave_way_trained']} had been trained on."
        )
    for name, what in (("retired_held_out", "held-out"), ("retired_validation", "validation")):
        if ledger[name]:
            said.append(f"{ledger[name]} tasks of the {what} side retired, because linked tasks had been used.")
    if ledger["rotated"]:
        said.append(f"{ledger['rotated']} held-out tasks were released to training.")
    if newer := ", ".join(f"{count} {split}" for split, count in ledger.get("newer", {}).items() if count):
        said.append(f"Tasks that the first draw did not know: {newer}.")
    if ledger["short"]:
        said.append("Short: " + ", ".join(f"{split} by {count}" for split, count in ledger["short"].items()) + ".")
    first = ledger["first_held_out"]
    said.append(f"Of the first {first['tasks']} held-out tasks, {first['still']} still are.")
    return " ".join(said)


def filled(candidates: Sequence[str], size: int, share: float, seen: Iterable[str]) -> list[str]:
    """The tasks of a set, of which a share goes to tasks that are still being asked.

    A set of S tasks keeps S - R places for the tasks of its side that were there first. The other R = share x S hold a window:
    at first the next tasks in that order, then, in steps of S / 10 tasks, those that were seen most recently. Between two
    steps the window stays, so that nights with little that is new keep their held-out tasks and with them earlier
    evaluations.

    All of it follows from the traces and the order of tasks in the record, however many curations have read them. A task that
    leaves a set keeps its side.

    Args:
        candidates: The tasks that the set may hold, those first that were there first.
        size: How many it holds.
        share: How much of it turns over.
        seen: The task of each trace since the first draw, in the order of time.
    """
    places = min(round(share * size), size - 1)  # one place at least stays
    if len(candidates) <= size or places <= 0:
        return list(candidates[:size])
    first, others = candidates[: size - places], candidates[size - places :]
    window = dict.fromkeys(others[:places])  # the task that was seen longest ago comes first
    waiting: dict[str, None] = {}
    known, step = set(others), max(1, min(places, round(STEP * size)))
    for task in seen:
        if task not in known:
            continue
        group = window if task in window else waiting
        group.pop(task, None)
        group[task] = None
        if len(waiting) == step:
            window |= waiting
            window = dict.fromkeys(list(window)[-places:])
            waiting.clear()
    return [*first, *window]
