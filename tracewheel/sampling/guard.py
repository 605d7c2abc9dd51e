"""The guard's judgement: whether an iteration shows a policy that falls apart.

Pure functions of stored figures, so a resumed run judges as the first one did. Success and malformed calls are compared task
by task, so that a sampler that turns to harder tasks raises no alarm.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tracewheel.core.files import read_table
from tracewheel.core.inference import Shift, stratified_shift
from tracewheel.sampling.validation import best_of
from tracewheel.scoring.flaws import steps_of
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import read_scores

LEAST_VALUES = 3  # iterations that a band needs
ROBUST = 1.4826  # median absolute deviations to standard deviations (of a normal distribution)
WIDTH = 4.0  # a band's half width, in robust standard deviations
MASTERY = 0.85  # from this success on, low entropy is a policy that knows its tasks
WINDOW = 4  # iterations that success and malformed calls are compared with; metrics, with twice as many
# Standard deviations from which an iteration is outside: one beyond the second, two in a row beyond the first, or the last
# few together beyond the third.
DOUBTFUL, CERTAIN, PERSISTENT = 2.6, 4.8, 3.5
SUCCESS_FALL, MALFORMED_RISE = 0.25, 0.05  # a share of the success before; a share of episodes
FACTORS = {"entropy": 3.0, "kl": 10.0, "grad_norm": 10.0}  # where the bands of metrics end, at the least, from their median
LEAST_KL, MOST_KL = 0.1, 5.0  # nats a token: below the first never an alarm, from the second on always

Level = Literal["doubtful", "certain"]
Action = Literal["go_back", "stop", "note"]


@dataclass(frozen=True)
class TaskCounts:
    """The episodes of one task in one iteration.

    `malformed` counts episodes with a malformed call or a call of a tool that was not offered.
    """

    successes: int
    scored: int
    malformed: int
    episodes: int


@dataclass(frozen=True)
class Share:
    """A share of episodes, by the fields of `TaskCounts` that it is made of."""

    hits: str
    n: str

    def of(self, counts: TaskCounts) -> tuple[int, int]:
        return getattr(counts, self.hits), getattr(counts, self.n)


SUCCESSES, MALFORMED = Share("successes", "scored"), Share("malformed", "episodes")


@dataclass(frozen=True)
class IterationFigures:
    """What the guard reads of an iteration.

    Attributes:
        number: The iteration.
        tasks: Task to the counts of its episodes.
        metrics: Of its update: `entropy`, `kl` and `grad_norm`, where they were measured.
    """

    number: int
    tasks: Mapping[str, TaskCounts] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def success(self) -> float:
        """Share of successes over scored episodes; NaN without any."""
        scored = sum(task.scored for task in self.tasks.values())
        return sum(task.successes for task in self.tasks.values()) / scored if scored else math.nan


Figures = Sequence[IterationFigures]


@dataclass(frozen=True)
class Signal:
    """A figure outside its band.

    Attributes:
        name: `success`, `malformed`, `entropy`, `kl` or `grad_norm`.
        value: What was measured; None where it is not finite.
        expected: The reference's figure: for success and malformed calls, of the same tasks; None without a reference.
        level: How far outside.
        since: The first iteration that it was measured on.
    """

    name: str
    value: float | None
    expected: float | None
    level: Level
    since: int

    @property
    def sentence(self) -> str:
        measured = f"{self.name} {'is not finite' if self.value is None else f'{self.value:.3g}'}"
        return measured if self.expected is None else f"{measured}, expected {self.expected:.3g}"

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Alarm:
    """A confirmed departure: since which iteration, and the signals of the last one."""

    since: int
    signals: tuple[Signal, ...]

    @property
    def sentence(self) -> str:
        return "; ".join(signal.sentence for signal in self.signals)


def judge(history: Sequence[IterationFigures], *, best: int, families: Mapping[str, str] | None = None) -> Alarm | None:
    """Whether the last iteration raises the alarm.

    Args:
        history: The iterations that led to the current policy, the last one included. After the loop went back, those of
            the lost policies are not among them.
        best: The best candidate's iteration; its policy played iteration `best` + 1.
        families: The family of each curated task. Tasks without one are never compared with other tasks.

    Returns:
        The alarm; None where all is within its band, or a doubtful departure is not confirmed yet.
    """
    if not history:
        return None
    before = signals(history[:-1], best=best, families=families)
    trusted = [*history[: -2 if before else -1], history[-1]]
    now = signals(trusted, best=best, families=families)
    if before and now:
        return Alarm(min(signal.since for signal in (*before, *now)), now)
    if any(signal.level == "certain" for signal in now):
        return Alarm(min(signal.since for signal in now), now)
    return None


def signals(history: Sequence[IterationFigures], *, best: int, families: Mapping[str, str] | None = None) -> tuple[Signal, ...]:
    """The last iteration's figures that are outside their band, given the earlier ones."""
    if not history:
        return ()
    found: dict[str, Signal] = {}
    for sample, earlier, reference, doubtful, certain in _comparisons(history, best):
        fall = shift_of(sample, earlier, reference, families or {}, SUCCESSES)
        rise = shift_of(sample, earlier, reference, families or {}, MALFORMED)
        for name, shift, z in (("success", fall, -fall.z), ("malformed", rise, rise.z)):
            change = shift.observed - shift.expected
            large = change >= MALFORMED_RISE if name == "malformed" else -change >= SUCCESS_FALL * shift.expected
            if large and z >= doubtful and (name not in found or found[name].level == "doubtful"):
                level: Level = "certain" if z >= certain else "doubtful"
                found[name] = Signal(name, shift.observed, shift.expected, level, sample[0].number)
    return (*found.values(), *_bands(history[-2 * WINDOW - 1 : -1], history[-1]))


def _comparisons(history: Figures, best: int) -> Iterator[tuple[Figures, Figures, Figures, float, float]]:
    """What is compared: (sample, all earlier, reference, from which z it is doubtful, from which certain).

    The last iteration is compared with those before it, which shows a sudden fall; with those around the best candidate, which
    shows a slow one; and the last few together with those around the best, which shows one that small iterations hide.
    """
    last, earlier = history[-1:], history[:-1]
    recent, around = earlier[-WINDOW:], _around(earlier, best, WINDOW)
    yield last, earlier, recent, DOUBTFUL, CERTAIN
    if around != recent:
        yield last, earlier, around, DOUBTFUL, CERTAIN
    few = min(WINDOW, len(history) // 2)
    if few > 1:
        before = history[:-few]
        yield history[-few:], before, _around(before, best, WINDOW), PERSISTENT, PERSISTENT


def _around(earlier: Figures, best: int, window: int) -> Figures:
    """The iterations nearest to the one that the best candidate played."""
    nearest = sorted(earlier, key=lambda item: abs(item.number - best - 1))[:window]
    return sorted(nearest, key=lambda item: item.number)


def shift_of(sample: Figures, earlier: Figures, reference: Figures, families: Mapping[str, str], share: Share) -> Shift:
    """How a share of some iterations' episodes differs from that of earlier ones.

    A task that the reference played is a stratum of its episodes. A task that no earlier iteration played is compared with the
    first episodes of its family's tasks in the reference: untried tasks are drawn alike, so they are equally hard on average.
    There the values are the tasks' shares, since the episodes of one task are alike.

    Args:
        sample: The iterations.
        earlier: All iterations before them.
        reference: Those of these to compare with.
        families: The family of each curated task.
        share: Of what.
    """
    pooled, own = _pool(reference, share), _pool(sample, share)
    played: set[str] = set()
    first: list[tuple[str, float]] = []
    for item in earlier:
        if item in reference:
            firsts = {task_id: share.of(counts) for task_id, counts in item.tasks.items() if task_id not in played}
            first += [(task_id, hits / n) for task_id, (hits, n) in sorted(firsts.items()) if n]
        played |= item.tasks.keys()
    same = [(_episodes(*own[task_id]), _episodes(*pooled[task_id])) for task_id in own if task_id in pooled]
    new = [(task_id, hits / n) for task_id, (hits, n) in own.items() if task_id not in played and n]
    alike = [
        tuple([value for task_id, value in side if families.get(task_id) == family] for side in (new, first))
        for family in sorted(set(families.values()))
    ]
    return stratified_shift([*same, *((sample, known) for sample, known in alike)])


def _pool(iterations: Figures, share: Share) -> dict[str, tuple[int, int]]:
    """Task to hits and number over some iterations."""
    pooled: dict[str, tuple[int, int]] = {}
    for item in iterations:
        for task_id, counts in item.tasks.items():
            (hits, n), (old_hits, old_n) = share.of(counts), pooled.get(task_id, (0, 0))
            pooled[task_id] = (old_hits + hits, old_n + n)
    return dict(sorted(pooled.items()))


def _episodes(hits: int, n: int) -> list[float]:
    return [1.0] * hits + [0.0] * (n - hits)


def _bands(earlier: Sequence[IterationFigures], last: IterationFigures) -> Iterator[Signal]:
    """The update's metrics outside their bands, which are symmetric in the logarithm."""
    for name, factor in FACTORS.items():
        value = last.metrics.get(name)
        if value is None:
            continue
        known = [item.metrics[name] for item in earlier if name in item.metrics]
        known = [number for number in known if math.isfinite(number) and number > 0]
        middle = statistics.median(known) if known else None
        if not math.isfinite(value) or (name == "kl" and value >= MOST_KL):
            yield Signal(name, value if math.isfinite(value) else None, middle, "certain", last.number)
        elif len(known) >= LEAST_VALUES and value > 0 and (level := _outside(name, value, known, factor, last)):
            yield Signal(name, value, middle, level, last.number)


def _outside(name: str, value: float, known: Sequence[float], factor: float, last: IterationFigures) -> Level | None:
    logs = [math.log(number) for number in known]
    middle = statistics.median(logs)
    deviation = ROBUST * statistics.median(abs(number - middle) for number in logs)
    width = max(math.log(factor), WIDTH * deviation)
    distance = math.log(value) - middle
    if distance < 0:
        # A small KL or gradient is no collapse; of entropy only one that comes while the tasks are still failed.
        if name != "entropy" or last.success >= MASTERY:
            return None
        distance = -distance / 2  # a policy that learns becomes surer: downwards the band is twice as wide
    if name == "kl" and value < LEAST_KL:
        return None
    return "certain" if distance >= 2 * width else "doubtful" if distance >= width else None


@dataclass(frozen=True)
class GuardEvent:
    """What the guard did about an alarm.

    Attributes:
        iteration: The iteration after which it acted.
        action: `go_back`, `stop`, or `note`: the loop ends here anyway.
        since: The first iteration outside the bands.
        to: The iteration whose policy the loop goes on from; of `stop` and `note`, the best candidate before the alarm.
        learning_rate: The profile's rate from now on, before its schedule.
        signals: Records of `Signal`.
        loop: The loop's name.
    """

    iteration: int
    action: Action
    since: int
    to: int
    learning_rate: float
    signals: tuple[Mapping[str, Any], ...]
    loop: str = "rl"

    @property
    def sentence(self) -> str:
        """The event in one line."""
        figures = "; ".join(Signal(**signal).sentence for signal in self.signals)
        done = {
            "go_back": f"back to iteration {self.to} with learning rate {self.learning_rate:.3g}",
            "stop": f"stopped, no attempt is left; the best candidate before is iteration {self.to}",
            "note": f"the loop ends here; the best candidate before is iteration {self.to}",
        }
        return f"iteration {self.iteration}: {figures}; {done[self.action]}"

    def to_record(self) -> dict[str, Any]:
        """The event as JSON types, its sentence included."""
        return {**asdict(self), "signals": [dict(signal) for signal in self.signals], "sentence": self.sentence}


def best_before(alarm: Alarm, rates: Mapping[int, float | None], lag: int = 0) -> int:
    """The best candidate that the alarm says nothing against; ties go to the earliest, and the start where none is ranked.

    Iteration `since` was played by the policy of the iteration before it, or of one up to `lag` iterations earlier still.

    Args:
        alarm: The alarm.
        rates: Iteration to success on the validation split; 0 is the start.
        lag: How many updates old a policy may be whose episodes are trained on.
    """
    sound = {iteration: rate for iteration, rate in sorted(rates.items()) if iteration <= max(0, alarm.since - 2 - lag)}
    return best_of(sound) or 0


COLUMNS = ("task_id", "turns", "messages")


def count_episodes(
    trajectories: Sequence[Path], scores: Sequence[Path], tools: Collection[str] | None
) -> dict[str, TaskCounts]:
    """The counts of each task of an iteration. Unscored episodes are left out of successes and failures.

    Args:
        trajectories: Files of the iteration's trajectories.
        scores: Files of their scores.
        tools: Names of the offered tools; None where they are unknown, which leaves invented tools out.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for file in scores:
        for score in read_scores(file):
            success = success_of(score)
            if not math.isnan(success):
                found[score.task_id][0] += int(success)
                found[score.task_id][1] += 1
    for file in trajectories:
        table = read_table(file, COLUMNS)
        for task_id, turns, messages in zip(table["task_id"], table["turns"], table["messages"], strict=True):
            steps = steps_of(json.loads(messages), json.loads(turns), tools)
            found[str(task_id)][2] += bool(steps["malformed"] or steps["unknown_tools"])
            found[str(task_id)][3] += 1
    return {task_id: TaskCounts(*counts) for task_id, counts in sorted(found.items())}
