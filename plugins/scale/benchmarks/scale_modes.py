"""Iterations of training in both modes, played as discrete events over the replicas, the cores and the learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from scale_events import Clock, Replica, Servers
from scale_workload import Episode, Workload, lengths

MODES = ("sync", "async")


@dataclass(frozen=True)
class Plant:
    """Durations of the events. `publish_s` follows `update_s`; then each replica stalls for `swap_s`.

    A replica holds `sessions` open sessions and generates in `batch` of them at once; `tool_slots` calls can run at once. Sync
    without servers starts an engine for each batch, which takes `start_s`.
    """

    replicas: int
    sessions: int
    batch: int
    first_s: float
    each_s: float
    prefill_s: float
    turn_s: float
    cores: int | None
    core_turn_s: float
    tool_share: float
    update_s: Callable[[float], float]
    driver_s: Callable[[float], float]
    publish_s: float
    swap_s: float
    queue_s: float = 0.0
    tool_slots: int | None = None
    start_s: float = 0.0


@dataclass
class Group:
    """The order of one group: its oldest policy version, and the number of episodes left."""

    number: int
    episodes: list[Episode]
    oldest: int
    left: int


@dataclass
class Tally:
    """Totals of a run after its warm-up iterations."""

    seconds: float = 0.0
    episodes: int = 0
    sampled: int = 0
    tokens: int = 0
    iterations: int = 0
    stale_groups: int = 0
    staleness: list[int] = field(default_factory=list)
    learner_busy_s: float = 0.0
    driver_busy_s: float = 0.0
    core_busy_s: float = 0.0
    engine_busy_s: float = 0.0
    tail_s: float = 0.0


class Generation:
    """Episodes on replicas: each waits for a place in one, then takes turns between the engine, a core and its tool."""

    def __init__(self, plant: Plant) -> None:
        self.clock = Clock()
        self.plant = plant
        self.replicas = [
            Replica(
                self.clock,
                first_s=plant.first_s,
                each_s=plant.each_s,
                prefill_s=plant.prefill_s,
                turn_s=plant.turn_s,
                batch=plant.batch,
            )
            for _ in range(plant.replicas)
        ]
        self.cores = Servers(self.clock, plant.cores)
        self.tools = Servers(self.clock, plant.tool_slots)
        self._open = [0] * plant.replicas
        self._free = list(range(plant.replicas)) * plant.sessions  # in rotation, so that replicas share evenly
        self._free.reverse()

    @property
    def room(self) -> int:
        return len(self._free)

    def begin(self, episode: Episode, then: Callable[[], None]) -> None:
        """Begin an episode in a free place."""
        place = self._free.pop()
        self._take_turn(place, iter(episode), then)

    def _take_turn(self, place: int, turns: Any, then: Callable[[], None]) -> None:
        turn = next(turns, None)
        if turn is None:
            self._free.append(place)
            then()
            return
        go_on = partial(self._take_turn, place, turns, then)
        call = partial(self.tools.serve, turn.tool_s * self.plant.tool_share, go_on)
        work = partial(self.cores.serve, (turn.cpu_s + self.plant.core_turn_s), call)
        self.replicas[place].generate(turn.new, turn.said, work)

    def busy_s(self) -> float:
        """Seconds that full batches would have taken for all tokens read and sampled, over all replicas."""
        plant = self.plant
        a_token = plant.first_s / plant.batch + plant.each_s
        return sum(replica.sampled * a_token + replica.read * plant.prefill_s for replica in self.replicas)


def simulate(mode: str, plant: Plant, workload: Workload, *, iterations: int = 6, staleness: int = 2, seed: int = 0) -> Tally:
    """Play the iterations; the first two are not counted.

    Args:
        mode: `sync` or `async`.
        plant: Durations of the events.
        workload: The episodes, and their number per iteration.
        iterations: At least three.
        staleness: `rollout.max_staleness`, for async.
        seed: Seed of the episodes; the same in every mode.

    Raises:
        ValueError: no episode fits into a replica.
    """
    if plant.sessions < 1 or plant.replicas < 1:
        raise ValueError("no episode fits into a replica")
    play = (
        _Async(plant, workload, iterations, staleness, seed) if mode == "async" else _Batches(plant, workload, iterations, seed)
    )
    play.begin()
    play.generation.clock.run()
    return play.tally


WARM_UP = 2


class _Play:
    """Shared by the modes: the generation, the learner's times, and the totals."""

    def __init__(self, plant: Plant, workload: Workload, iterations: int, seed: int) -> None:
        self.generation = Generation(plant)
        self.clock = self.generation.clock
        self.plant, self.workload, self.iterations = plant, workload, iterations
        self.draw = workload.draw(seed)
        self.tally = Tally()
        self._from: dict[str, float] = {}

    def count(self, iteration: int, episodes: list[Episode], learner_s: float, driver_s: float) -> None:
        """Count an iteration that has ended now."""
        tally = self.tally
        if iteration > WARM_UP:
            sizes = [lengths(episode) for episode in episodes]
            tally.iterations += 1
            tally.episodes += len(episodes)
            tally.sampled += sum(said for said, _ in sizes)
            tally.tokens += sum(whole for _, whole in sizes)
            tally.learner_busy_s += learner_s
            tally.driver_busy_s += driver_s
        now = {"seconds": self.clock.now, "core": self.generation.cores.busy_s, "engine": self.generation.busy_s()}
        if iteration == WARM_UP:
            self._from = now
        if iteration == self.iterations:
            tally.seconds = now["seconds"] - self._from["seconds"]
            tally.core_busy_s = now["core"] - self._from["core"]
            tally.engine_busy_s = now["engine"] - self._from["engine"]

    def swap(self) -> None:
        for replica in self.generation.replicas:
            replica.stall(self.plant.swap_s)


class _Batches(_Play):
    """Sync: an iteration's rollouts, then its update."""

    def __init__(self, plant: Plant, workload: Workload, iterations: int, seed: int) -> None:
        super().__init__(plant, workload, iterations, seed)
        self._batch: list[Episode] = []
        self._to_begin: list[Episode] = []
        self._left = 0
        self._iteration = 0
        self._half = 0.0

    def begin(self) -> None:
        self._roll_out()

    def _roll_out(self) -> None:
        self._iteration += 1
        self._batch = [next(self.draw) for _ in range(self.workload.episodes)]
        self._to_begin = self._batch[::-1]
        self._left = len(self._batch)
        self.clock.at(self.clock.now + self.plant.start_s, self._fill)

    def _fill(self) -> None:
        while self._to_begin and self.generation.room:
            self.generation.begin(self._to_begin.pop(), self._ended)

    def _ended(self) -> None:
        self._left -= 1
        if self._left == len(self._batch) // 2:
            self._half = self.clock.now
        if self._left:
            self._fill()
            return
        if self._iteration > WARM_UP:
            self.tally.tail_s += self.clock.now - self._half
        self._learn()

    def _learn(self) -> None:
        batch, iteration = self._batch, self._iteration
        tokens = float(sum(whole for _, whole in map(lengths, batch)))
        driver_s = self.plant.driver_s(tokens) + self.plant.queue_s * self.workload.tasks
        update_s = self.plant.update_s(tokens)
        end = self.clock.now + driver_s + update_s + self.plant.publish_s
        self.clock.at(end, self._learnt, iteration, batch, update_s, driver_s)

    def _learnt(self, iteration: int, batch: list[Episode], update_s: float, driver_s: float) -> None:
        self.tally.staleness.append(0)
        self.count(iteration, batch, update_s, driver_s)
        self.swap()
        if iteration < self.iterations:
            self._roll_out()


class _Async(_Play):
    """Rolls out continuously, as far ahead as the staleness bound allows; the learner takes the oldest complete groups."""

    def __init__(self, plant: Plant, workload: Workload, iterations: int, staleness: int, seed: int) -> None:
        super().__init__(plant, workload, iterations, seed)
        self._staleness = staleness
        self._published = 0
        self._issued = 0
        self._reissued: list[int] = []
        self._waiting: list[tuple[Group, Episode]] = []
        self._complete: list[Group] = []
        self._iteration, self._learning = 0, False
        self._queue = Servers(self.clock, 1)

    def begin(self) -> None:
        self._fill()

    def _allowed(self) -> int:
        """The number of orders that may be issued by now: order n belongs to iteration n // tasks + 1."""
        return (self._published + 1 + self._staleness) * self.workload.tasks

    def _fill(self) -> None:
        while self.generation.room and self._iteration < self.iterations:
            if not self._waiting and not self._issue():
                return
            group, episode = self._waiting.pop()
            if group.oldest < 0:
                group.oldest = self._published
            self.generation.begin(episode, partial(self._ended, group))

    def _issue(self) -> bool:
        if self._reissued:
            number = self._reissued.pop()
        elif self._issued < self._allowed():
            number = self._issued
            self._issued += 1
        else:
            return False
        episodes = [next(self.draw) for _ in range(self.workload.group)]
        group = Group(number, episodes, -1, len(episodes))
        self._waiting = [(group, episode) for episode in reversed(episodes)]
        return True

    def _ended(self, group: Group) -> None:
        group.left -= 1
        if not group.left:
            self._queue.serve(self.plant.queue_s, partial(self._handed_in, group))
        self._fill()

    def _handed_in(self, group: Group) -> None:
        self._complete.append(group)
        self._learn_if_ready()

    def _learn_if_ready(self) -> None:
        if self._learning or self._iteration >= self.iterations:
            return
        fresh = [group for group in self._complete if self._published - group.oldest <= self._staleness]
        stale = [group for group in self._complete if self._published - group.oldest > self._staleness]
        self._complete = fresh
        self._reissued += [group.number for group in stale]
        if self._iteration >= WARM_UP:
            self.tally.stale_groups += len(stale)
        if stale:
            self._fill()
        if len(fresh) < self.workload.tasks:
            return
        fresh.sort(key=lambda group: group.number)
        taken, self._complete = fresh[: self.workload.tasks], fresh[self.workload.tasks :]
        self._learning = True
        self._iteration += 1
        self.tally.staleness += [self._published - group.oldest for group in taken]
        batch = [episode for group in taken for episode in group.episodes]
        tokens = float(sum(whole for _, whole in map(lengths, batch)))
        driver_s, update_s = self.plant.driver_s(tokens), self.plant.update_s(tokens)
        end = self.clock.now + driver_s + update_s + self.plant.publish_s
        self.clock.at(end, self._learnt, self._iteration, batch, update_s, driver_s)

    def _learnt(self, iteration: int, batch: list[Episode], update_s: float, driver_s: float) -> None:
        self._learning = False
        self._published = iteration
        self.count(iteration, batch, update_s, driver_s)
        self.swap()
        self._learn_if_ready()
        self._fill()
