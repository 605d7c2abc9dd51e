"""The rollout stage: many episodes at once, token in and token out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import RolloutConfig, RolloutSections
from tracewheel.core.files import write_json, write_records
from tracewheel.core.kind_table import import_class
from tracewheel.core.progress import report
from tracewheel.core.time_limits import WatchedThreads
from tracewheel.core.types import GREEDY_FILE, Task, Trajectory, content_hash, first_turn, not_failed
from tracewheel.core.types import TRAJECTORIES_FILE as TRAJECTORIES_FILE
from tracewheel.engines.making import make_engine
from tracewheel.environments import wanted_threads
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.diversity import group_diversity
from tracewheel.rollout.episode import EpisodeSpec
from tracewheel.rollout.episode_pool import EpisodePool, Pool
from tracewheel.rollout.training_tasks import training_tasks, write_variants
from tracewheel.sampling.seeds import rollout_seed
from tracewheel.scoring.missing import failed_words

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine

PROGRAMS = "tracewheel.rollout.harness.pool:HarnessPool"  # of a profile with `rollout.harness`
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RolloutPlan:
    """What to roll out.

    Attributes:
        tasks: Each gets one group of episodes.
        samples: Episodes in a group.
        seed: Fixes every random number of every episode.
        greedy: Take the most likely token at each step instead of sampling.
        greedy_baseline: Play each task once more, greedily. These episodes are written to a file of their own: only their
            reward counts, as a baseline, and no update, pass rate or figure of groups has them.
    """

    tasks: list[Task]
    samples: int
    seed: int
    greedy: bool = False
    greedy_baseline: bool = False


def roll_out(
    config: RolloutSections,
    policy: PolicyRef,
    curated: Path,
    task_ids: Sequence[str],
    out: Path,
    *,
    iteration: int,
    variants: Sequence[Task] = (),
    greedy_baseline: bool = False,
) -> dict[str, Any]:
    """The rollout stage: sample a group of trajectories of each task that an iteration plays; writes what `rollout` does.

    Tasks that `curated` does not have, or that training plays with other arguments, are written to `variants.parquet`.

    Args:
        config: Its sections of the profile.
        policy: Which policy.
        curated: The curation stage's output.
        task_ids: What the sampler chose.
        out: The folder to write to.
        iteration: Its number; every random number follows from it and the seed.
        variants: Those of the tasks that curation did not make.
        greedy_baseline: Play each task greedily too; see `RolloutPlan`.

    Raises:
        DataError: the curated folder or the base cannot be read.
        AdapterMismatchError: the policy's adapter belongs to another base.
        InputError: the engine would get the base's logits wrong.
        TimeLimitError: too many environments hang.
        DataError, InfrastructureError: too many episodes failed.
    """
    seed = rollout_seed(config.seed, iteration)
    played = training_tasks(config.rollout.exploration, curated, task_ids, variants, seed)
    write_variants(out, played.made)
    samples = config.rollout.group_size
    plan = RolloutPlan(played.tasks, samples, seed, greedy_baseline=greedy_baseline)
    return rollout(config, policy, plan, out)


def rollout(
    config: RolloutSections, policy: PolicyRef, plan: RolloutPlan, out: Path, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Roll a policy out and write `trajectories.parquet` and `metrics.json` to `out`; `greedy.parquet` if the plan has it.

    Args:
        config: Its sections of the profile.
        policy: Which policy.
        plan: Tasks and sampling.
        out: The folder to write to.
        progress: Called with (episodes done, episodes in all).

    Raises:
        AdapterMismatchError: the policy's adapter belongs to another base.
        DataError: the base cannot be loaded.
        InputError: the engine would get the base's logits wrong.
        TimeLimitError: too many environments hang.
        DataError, InfrastructureError: too many episodes failed.
    """
    slots = len(plan.tasks) * (plan.samples + plan.greedy_baseline)
    engine, renderer = make_engine(config, policy, greedy=plan.greedy, slots=slots)
    found = run_episodes(engine, renderer, config.rollout, plan, progress=progress)
    sampled = len(plan.tasks) * plan.samples
    trajectories, greedy = found[:sampled], found[sampled:]
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / TRAJECTORIES_FILE, trajectories, Trajectory)
    metrics = rollout_metrics(trajectories)
    if greedy:
        write_records(out / GREEDY_FILE, greedy, Trajectory)
        metrics |= {"episodes": len(found), "greedy_episodes": len(greedy)}
    write_json(out / "metrics.json", metrics)
    return metrics


def rollout_metrics(trajectories: list[Trajectory]) -> dict[str, Any]:
    """How much was sampled, and how much the episodes of a group differ: without those that the infrastructure failed.

    `fault_NAME` counts the episodes that went wrong through the fault of NAME, where there are any; `without_score` says what
    most of many failed of.

    Raises:
        DataError, InfrastructureError: too many failed; see `failed_words`.
    """
    whole = not_failed(trajectories)
    metrics: dict[str, Any] = {
        "episodes": len(trajectories),
        "prompt_and_observation_tokens": sum(len(t.action_mask) - sum(t.action_mask) for t in trajectories),
        "generated_tokens": sum(sum(t.action_mask) for t in trajectories),
        **group_diversity([t.group for t in whole], [t.messages[first_turn(t.messages, t.turns) :] for t in whole]),
    }
    faults = Counter(trajectory.fault for trajectory in trajectories if trajectory.fault)
    metrics |= {f"fault_{name}": faults[name] for name in sorted(faults)}
    return metrics | ({"without_score": words} if (words := failed_words(trajectories)) else {})


def run_episodes(
    engine: Engine, renderer: ChatRenderer, config: RolloutConfig, plan: RolloutPlan, *, progress: Progress | None = None
) -> list[Trajectory]:
    """Run the episodes of a plan; trajectories in the order of tasks, then samples. The greedy baselines follow, by task.

    Raises:
        ConfigError: the program of `harness` cannot be started.
        InfrastructureError: the engine failed under the programs of `harness`.
        TimeLimitError: too many environments hang.
    """
    wanted = [
        EpisodeSpec(task, sample, episode_seed(plan.seed, task, sample), config.temperature)
        for task in plan.tasks
        for sample in range(plan.samples)
    ]
    if plan.greedy_baseline:
        number, temperature = plan.samples, config.temperature
        wanted += [
            EpisodeSpec(task, number, episode_seed(plan.seed, task, number), temperature, greedy=True) for task in plan.tasks
        ]
    config = with_threads(config, {task.environment for task in plan.tasks}, len(wanted))
    found: dict[int, Trajectory] = {}
    told = 0
    with episode_pool(engine, renderer, config) as pool:
        for number, spec in enumerate(wanted):
            pool.begin(number, spec)
        report(0, len(wanted), "episodes")
        while pool.open:
            for number, trajectory in pool.step():
                found[number] = trajectory
                if progress:
                    progress(len(found), len(wanted))
            # After each turn: with a slow model it takes minutes until the first episode ends.
            if pool.sampled > told or not pool.open:
                told = pool.sampled
                report(len(found), len(wanted), "episodes", told)
    return [found[number] for number in range(len(wanted))]


@contextmanager
def episode_pool(engine: Engine, renderer: ChatRenderer, config: RolloutConfig) -> Iterator[Pool]:
    """What runs episodes: our own loop, or the programs of `rollout.harness`.

    Raises:
        ConfigError: a program cannot be started.
        InfrastructureError: the gateway does not start.
    """
    if config.harness is not None:
        with import_class(PROGRAMS, "pool")(engine, renderer, config) as programs:
            yield programs
        return
    with tool_threads(config) as tools:
        pool = EpisodePool(engine, renderer, config, tools, alone=config.tool_threads <= 1)
        try:
            yield pool
        finally:
            pool.close()


def episode_seed(seed: int, task: Task, sample: int) -> int:
    """Seed of one episode of a rollout with `seed`."""
    return int(content_hash([seed, task.id, sample], 15), 16)


def with_threads(config: RolloutConfig, environments: Iterable[str], episodes: int) -> RolloutConfig:
    """The settings with as many threads as environments want, where the profile names none: all that generate may wait.

    Args:
        config: Of the rollout.
        environments: Their kinds.
        episodes: How many are open at once.
    """
    if config.tool_threads:
        return config
    most = min(config.engine.slots, episodes)
    threads = max((wanted_threads(kind, most) for kind in environments), default=0)
    return config.model_copy(update={"tool_threads": threads})


@contextmanager
def tool_threads(config: RolloutConfig) -> Iterator[WatchedThreads | None]:
    """The threads that environments are called in; None when they are called in the caller's, which no limit watches."""
    if not (config.tool_threads or config.step_seconds or config.episode_seconds):
        yield None
        return
    tools = WatchedThreads(config.tool_threads or 1)
    try:
        yield tools
    finally:
        tools.close()  # a tool that hangs is not waited for
