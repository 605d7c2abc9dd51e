"""A rollout worker: leases orders, keeps an engine busy with their episodes, and hands in whole groups.

It samples while the learner trains. When a newer policy is published, the engine loads it between two steps: episodes
under way continue with it, and each token keeps the version that sampled it.
"""

from __future__ import annotations

import math
import time

from tracewheel.config import WorkerSections
from tracewheel.core.fingerprint import code_version
from tracewheel.core.types import Trajectory
from tracewheel.engines.making import make_engine
from tracewheel.rollout.episode import EpisodeSpec
from tracewheel.rollout.episode_pool import Pool
from tracewheel.rollout.orders import Order, RolloutSource
from tracewheel.rollout.rollout import episode_pool, episode_seed, with_threads
from tracewheel.scoring.world_code import world_code

POLL_SECONDS = 0.05
BEAT_SECONDS = 1.0


def worker_code(config: WorkerSections) -> str:
    """Hash of the code that workers run: a worker on another machine has to have the driver's."""
    world = world_code(config.environment.spec, config.environment.verifiers)
    return code_version(__name__, *world.modules, plugins=world.plugins)


def work(source: RolloutSource, config: WorkerSections, worker: str) -> None:
    """Roll out what the source orders, until the run has ended.

    Args:
        source: Gives orders and policies, and says when the run has ended.
        config: The profile; `threads` are this worker's own.
        worker: A name that no other worker of the run, dead or alive, has.

    Raises:
        AdapterMismatchError: a published policy belongs to another base.
        DataError: the base cannot be loaded.
        InfrastructureError: the source fails.
        InputError: the engine would get the base's logits wrong.
    """
    most = most_episodes(config)
    engine, renderer = make_engine(config, source.policy(), greedy=False, slots=most)
    rollout = with_threads(config.rollout, [config.environment.spec], most)
    with episode_pool(engine, renderer, rollout) as pool:
        groups = Groups(pool, config)
        beat = poll = 0.0
        while True:
            now = time.monotonic()
            if now >= beat:
                if not source.heartbeat(worker):
                    return
                beat = now + BEAT_SECONDS
            if now >= poll:
                _take_over(pool, source)
                if room := (most - groups.episodes) // config.rollout.group_size:
                    for order in source.lease(worker, room):
                        groups.begin(order)
                poll = now + POLL_SECONDS
            if not groups.episodes:
                time.sleep(POLL_SECONDS)
                continue
            for order, trajectories in groups.step():
                source.complete(order, worker, trajectories)
                poll = 0.0


def most_episodes(config: WorkerSections) -> int:
    """How many episodes a worker runs at once: its share of what may be sampled ahead, limited by its engine's slots."""
    rollout, training = config.rollout, config.training
    ahead = (1 + rollout.max_staleness) * training.tasks_per_iteration
    share = math.ceil(ahead / rollout.workers.count) * rollout.group_size
    return max(rollout.group_size, min(share, rollout.engine.slots))


class Groups:
    """The groups that a worker is rolling out, on a pool of episodes."""

    def __init__(self, pool: Pool, config: WorkerSections) -> None:
        self._pool = pool
        self._begun = 0
        self._order_of: dict[int, Order] = {}
        self._found: dict[str, list[Trajectory]] = {}

    @property
    def episodes(self) -> int:
        """The number of open episodes."""
        return self._pool.open

    def begin(self, order: Order) -> None:
        """Begin all episodes of an order."""
        task = order.load_task()
        self._found[order.id] = []
        for sample in range(order.samples):
            seed = episode_seed(order.rollout_seed, task, sample)
            self._order_of[self._begun] = order
            self._pool.begin(self._begun, EpisodeSpec(task, sample, seed, order.temperature))
            self._begun += 1

    def step(self) -> list[tuple[Order, list[Trajectory]]]:
        """Move on; returns the groups whose last episode has ended."""
        whole = []
        for number, trajectory in self._pool.step():
            order = self._order_of.pop(number)
            found = self._found[order.id]
            found.append(order.own(trajectory))
            if len(found) == order.samples:
                whole.append((order, sorted(self._found.pop(order.id), key=lambda trajectory: trajectory.sample)))
        return whole


def _take_over(pool: Pool, source: RolloutSource) -> None:
    policy = source.policy()
    if policy.version != pool.policy_version:
        pool.update_weights(policy)
