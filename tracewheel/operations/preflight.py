"""What can be told of a profile in seconds, before anything is trained: classes, logs, replays, verifier, prompts, base."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from tracewheel.config import RetrainConfig, RolloutSections
from tracewheel.config.algorithms import OwnAdvantageConfig
from tracewheel.core.errors import ConfigError, DataError, TracewheelError
from tracewheel.core.machine import available
from tracewheel.core.own_code import OwnCodeError, described, named, place
from tracewheel.core.types import Task, Trace
from tracewheel.curation.agreement import GOOD_AGREEMENT
from tracewheel.curation.duplicates import DuplicateFinder
from tracewheel.curation.fitting import TOO_LARGE, component_words, describe_components
from tracewheel.curation.leaks import linking_clusters
from tracewheel.curation.probes import probe_task
from tracewheel.curation.replay import Replay, replay_trace
from tracewheel.curation.splits import components
from tracewheel.environments import Observation, Refusal, open_environment, wanted_threads
from tracewheel.environments.recorded.calls import parsed_arguments
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.evaluation.idle_reward import ADVICE as IDLE_ADVICE
from tracewheel.evaluation.idle_reward import idle_reward
from tracewheel.policy.adapters import base_folder
from tracewheel.policy.template import Checked, check_base
from tracewheel.rollout.prompt_lengths import check_prompts
from tracewheel.scoring.rubric import Rubric
from tracewheel.traces.discovery import find_logs, find_outcomes
from tracewheel.traces.explain import read_first
from tracewheel.traces.quarantine import ADVICE, Quarantined
from tracewheel.traces.sources import named as named_paths
from tracewheel.traces.statements import read_outcomes

State = Literal["ok", "warning", "error", "skipped"]
FEW_TASKS = 6  # that say nothing of how tasks hang together
TRACES, TASKS = 60, 3  # of the logs: how many are read, and how many tasks are played
BYTES = 16 << 20  # of a log file: spans of one trace may stand far apart
SECONDS, IDLE_SECONDS = 4.0, 10.0  # for replays, and for episodes without work
SLOW_CALL = 0.1  # seconds
FEW_CALLS = 0.1  # of the logged calls: so many mistakes are usual
GIB = 1 << 30
NEEDED = ("tools", "task_from_log", "reset", "step", "snapshot")
LEFT_OUT = "curation leaves such tasks out; if all are, nothing is left to train on"


@dataclass(frozen=True)
class Line:
    """One thing that was checked.

    Attributes:
        name: What, as in "replays".
        state: "error" stands in the way of a run.
        says: What was found.
        advice: What to do, where something is wrong.
    """

    name: str
    state: State
    says: str
    advice: str = ""


@dataclass
class _Looked:
    """What earlier checks have found, for later ones."""

    config: RetrainConfig
    traces: list[Trace] = field(default_factory=list)
    replays: list[tuple[Trace, Replay]] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    has_base: bool = False
    whole: bool = False  # whether these are all logs, so that what is wrong with all of them stands in the way

    @property
    def worst(self) -> State:
        return "error" if self.whole else "warning"


def preflight(config: RetrainConfig) -> Iterator[Line]:
    """Check a profile on its first logs, the model itself left out; each line as soon as it is known."""
    looked = _Looked(config)
    checks: dict[str, Callable[[_Looked], Iterator[Line]]] = {
        "environment": _environment,
        "verifiers": _verifiers,
        "advantage": _advantage,
        "logs": _logs,
        "late outcomes": _late_outcomes,
        "replays": _replays,
        "threads": _threads,
        "components": _components,
        "probes": _probes,
        "reward": _reward,
        "base": _base,
        "template": _template,
        "prompts": _prompts,
    }
    for name, check in checks.items():
        try:
            yield from check(looked)
        except TracewheelError as error:
            yield Line(name, "error", str(error))
        except Exception as error:  # a user's class may raise anything
            if described(error) is None:
                raise
            yield Line(name, "error", named(error))


def _environment(looked: _Looked) -> Iterator[Line]:
    kind = looked.config.environment.spec
    with open_environment(kind) as environment:
        if missing := [name for name in NEEDED if not callable(getattr(environment, name, None))]:
            raise ConfigError(f"environment '{looked.config.environment.kind}' has no method {', '.join(missing)}")
        tools = environment.tools()
    yield Line("environment", "ok", f"{looked.config.environment.kind}: {_count(len(tools), 'tool')}")


def _verifiers(looked: _Looked) -> Iterator[Line]:
    Rubric(looked.config.rubric, [])
    if looked.config.evaluation.rubric:
        Rubric(looked.config.evaluation.rubric, [])
    yield Line("rubric", "ok", ", ".join(term.kind for term in looked.config.rubric.verifiers))


def _advantage(looked: _Looked) -> Iterator[Line]:
    """A user's own advantage, on a few rewards of which one is missing."""
    advantage = getattr(looked.config.learner, "advantage", None)
    if not isinstance(advantage, OwnAdvantageConfig):
        return
    import torch

    from tracewheel.learner.advantages import trajectory_advantages

    rewards = torch.tensor([1.0, 0.0, float("nan"), 0.5, 0.5], dtype=torch.double)
    try:
        found = trajectory_advantages(advantage, rewards, ["a", "a", "a", "b", "b"])
    except TracewheelError:
        raise
    except Exception as error:  # anyone's code
        raise ConfigError(f"advantage '{advantage.kind}' raises {type(error).__name__}: {error}") from error
    yield Line(
        "advantage", "ok", f"{advantage.kind}: of rewards 1, 0, none | 0.5, 0.5: {[round(x, 3) for x in found.tolist()]}"
    )


def _logs(looked: _Looked) -> Iterator[Line]:
    config = looked.config.ingest
    files = find_logs(config)
    if not files:
        raise DataError(
            f"ingest.paths: no file matches {named_paths(config.paths)}; ingest and retrain fetch from sources, this does not"
        )
    bad: list[tuple[str, Quarantined]] = []
    for name, path in files.items():
        for item in islice(read_first(config, path, BYTES), TRACES - len(looked.traces) - len(bad)):
            if isinstance(item, Quarantined):
                bad.append((name, item))
            else:
                looked.traces.append(item)
        if len(looked.traces) + len(bad) >= TRACES:
            break
    else:
        looked.whole = all(path.stat().st_size <= BYTES for path in files.values())
    formats = ", ".join(sorted({trace.format for trace in looked.traces}))
    read = f"{_count(len(looked.traces), 'trace')} of {_count(len(files), 'file')}{f' as {formats}' if formats else ''}"
    if not bad:
        yield Line("logs", "ok" if looked.traces else "warning", read)
        return
    (reason, count), *_ = Counter(item.reason for _, item in bad).most_common(1)
    name, first = next((name, item) for name, item in bad if item.reason == reason)
    yield Line(
        "logs",
        "warning" if looked.traces else looked.worst,
        f"{read}; {_count(len(bad), 'record')} cannot be read, {count} as «{reason}» "
        f"(first: {name}:{first.line}: {first.detail})",
        ADVICE.get(reason, "tracewheel ingest --explain FILE shows what becomes of a record"),
    )


def _late_outcomes(looked: _Looked) -> Iterator[Line]:
    config = looked.config.ingest
    for name, path in find_outcomes(config).items():
        read = read_outcomes(path, name, dict(config.outcomes.fields.items()))
        found = f"{_count(len(read.statements), 'outcome')} in {name}"
        if read.unreadable:
            first = f"; {_count(len(read.unreadable), 'row')} without one (first: {read.unreadable[0]})"
            yield Line("late outcomes", "warning", f"{found}{first}", "ingest.outcomes.fields says where its parts are")
        else:
            yield Line("late outcomes", "ok", found)


def _replays(looked: _Looked) -> Iterator[Line]:
    kind = looked.config.environment.spec
    if kind.startswith(RECORDED) or not looked.traces:
        yield Line(
            "replays", "skipped", "a recorded world compares attempts instead" if looked.traces else "no trace to replay"
        )
        return
    dropped: Counter[str] = Counter()
    first: dict[str, Trace] = {}
    calls, raises = _Calls(), False
    began = time.monotonic()
    with open_environment(kind) as environment:
        with contextlib.suppress(AttributeError):  # a class with slots
            environment.step = calls.watched(environment.step)  # type: ignore[method-assign]
        for trace in looked.traces:
            if time.monotonic() - began > SECONDS:
                break
            try:
                replay = replay_trace(trace, environment)
            except Exception as error:
                said = str(error) if isinstance(error, DataError) else described(error)
                if said is None:
                    raise
                raises = raises or isinstance(error, OwnCodeError) or not isinstance(error, DataError)
                dropped[said] += 1
                first.setdefault(said, trace)
                continue
            looked.replays.append((trace, replay))
            if replay.task.id not in {task.id for task in looked.tasks}:
                looked.tasks.append(replay.task)
    replays = [replay for _, replay in looked.replays]
    # A class that fails at each of these will fail at the others; a log may have other agents' traces first.
    yield _agreement(replays, dropped, first, "error" if raises else looked.worst)
    yield from _outcomes(replays, looked.worst)
    yield from calls.refused()
    yield from _slow_tools(calls.took)


@dataclass
class _Calls:
    """The calls of a log as they are carried out again.

    Attributes:
        took: The seconds of each, by tool.
        answered: Those that no tool took, or whose exception is the tool's answer, by reason and tool.
        raised: Those whose exception ends an episode, by exception, tool and line.
    """

    took: dict[str, list[float]] = field(default_factory=dict)
    answered: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)

    def watched(self, step: Callable[..., Observation]) -> Callable[..., Observation]:
        def call(tool: str, args: dict[str, Any]) -> Observation:
            began = time.monotonic()
            try:
                observation = step(tool, args)
            except Exception as error:
                self.raised[f"{type(error).__name__} in {tool[:64]}{f' ({where})' if (where := place(error)) else ''}"] += 1
                raise
            finally:
                self.took.setdefault(tool, []).append(time.monotonic() - began)
            if isinstance(observation, Refusal):
                self.answered[f"{tool[:64]}, {observation.why}"] += 1
            return observation

        return call

    def refused(self) -> Iterator[Line]:
        """What the contract makes of mistaken calls and of exceptions (docs/your-environment.md)."""
        total = sum(map(len, self.took.values()))
        if self.raised:
            most, count = self.raised.most_common(1)[0]
            yield Line(
                "exceptions",
                "warning",
                f"step raises at {self.raised.total()} of {_count(total, 'logged call')}, {count} by {most}: such an episode "
                "fails through the fault of the environment, and has no score",
                "mend the class; where it is the tool's answer to the agent, raise ToolError, or set `exceptions` on the class",
            )
        if self.answered:
            most, count = self.answered.most_common(1)[0]
            yield Line(
                "calls",
                "warning" if self.answered.total() > FEW_CALLS * total else "ok",
                f"{self.answered.total()} of {_count(total, 'logged call')} are answered as errors, {count} of {most}: in an "
                "episode that is the policy's mistake, and scored",
                "where the agent's tools took such calls, widen the names and schemas of `tools`, or mend the class",
            )


def _slow_tools(took: dict[str, list[float]]) -> Iterator[Line]:
    means = {tool: sum(seconds) / len(seconds) for tool, seconds in took.items()}
    slow = {tool: mean for tool, mean in means.items() if mean > SLOW_CALL}
    if slow:
        said = ", ".join(f"{tool} ({mean:.2f} s)" for tool, mean in sorted(slow.items()))
        yield Line(
            "tools",
            "warning",
            f"a call takes long: {said}; an iteration of 64 episodes with 5 such calls spends "
            f"{64 * 5 * max(slow.values()) / 60:.1f} minutes on them",
            "set `tool_threads` on the class, so that calls of several episodes run at once, or make them faster",
        )


def _agreement(replays: list[Replay], dropped: Counter[str], first: dict[str, Trace], worst: State) -> Line:
    agree = [replay for replay in replays if not replay.observation_drift]
    total = len(replays) + dropped.total()
    says = f"{len(agree)} of {_count(total, 'trace')} are answered as logged"
    if dropped:
        reason, count = dropped.most_common(1)[0]
        record = f"{first[reason].source_file}:{first[reason].source_line}"
        state: State = "warning" if replays else worst
        return Line("replays", state, f"{says}; {count} give no task: {reason} (first: {record})", "mend the class or the log")
    if len(agree) < GOOD_AGREEMENT * total:
        difference = next(replay.difference for replay in replays if replay.observation_drift)
        return Line(
            "replays", "warning", f"{says}; first difference: {difference}", "mend the environment: what it answers now"
        )
    return Line("replays", "ok", says)


def _outcomes(replays: list[Replay], worst: State) -> Iterator[Line]:
    scored = [replay for replay in replays if replay.success is not None]
    if not replays:
        return
    if not scored:
        why = Counter(replay.unscored for replay in replays).most_common(1)[0][0]
        yield Line(
            "outcomes", "error" if len(replays) >= FEW_TASKS else worst, f"no episode can be scored: {why}", "mend the verifier"
        )
        return
    wins = sum(replay.success == 1.0 for replay in scored)
    says = f"{wins} of {_count(len(scored), 'episode')} succeed by the verifier"
    failed = Counter(replay.unscored for replay in replays if replay.unscored)
    if failed:
        why, count = failed.most_common(1)[0]
        yield Line(
            "outcomes", "warning", f"{says}; {count} more have no score: {why}", "mend the class: nothing is learnt from these"
        )
    elif not wins:
        yield Line("outcomes", "warning", says, "is the verifier too strict? Without a success there is no warm start")
    elif wins == len(scored):
        yield Line("outcomes", "warning", says, "is the verifier too mild? Where nothing fails there is nothing to learn")
    else:
        yield Line("outcomes", "ok", says)


def _threads(looked: _Looked) -> Iterator[Line]:
    """Whether an environment that is called in several threads can be: an episode's calls come from any of them."""
    kind = looked.config.environment.spec
    threads = looked.config.rollout.tool_threads or wanted_threads(kind)
    if not threads or not looked.replays:
        return
    with open_environment(kind) as environment, ThreadPoolExecutor(1) as other:
        for trace, replay in looked.replays[:TASKS]:
            environment.reset(replay.task)
            call = next((call["function"] for message in trace.messages for call in message.get("tool_calls") or []), None)
            try:
                if call is not None and isinstance(arguments := parsed_arguments(call["arguments"]), dict):
                    other.submit(environment.step, call["name"], arguments).result()
                other.submit(environment.snapshot).result()
            except Exception as error:
                if described(error) is None:
                    raise
                yield Line(
                    "threads",
                    "error",
                    f"{threads} threads call it, and in another one than that of `reset` {named(error)}",
                    "make what is tied to a thread usable in others (sqlite3: check_same_thread=False), or set no tool_threads",
                )
                return
    yield Line("threads", "ok", f"{threads}; an episode's calls may come from any of them")


def _components(looked: _Looked) -> Iterator[Line]:
    """Whether train, validation and test can be kept apart: tasks with a common user, session or copy stay on one side."""
    import pandas

    if len(looked.tasks) < FEW_TASKS:
        return
    rows = pandas.DataFrame(
        [
            {**trace.to_record(), "task_id": replay.task.id, "fingerprint": replay.task.fingerprint}
            for trace, replay in looked.replays
        ]
    )
    rows = rows.drop_duplicates("id")
    finder = DuplicateFinder()
    finder.add(rows)
    copies = linking_clusters(finder.clusters(), looked.config.curation.duplicates)
    of = components(rows, copies)
    parts = describe_components(pandas.DataFrame({"id": list(of), "component": list(of.values())}), rows, copies)
    says = f"{len(looked.tasks)} tasks hang together in {_count(parts['count'], 'component')}"
    if parts["largest"]["share"] > TOO_LARGE:
        yield Line("components", looked.worst if parts["count"] < 3 else "warning", says, component_words(parts))
    else:
        yield Line("components", "ok", says)


def _probes(looked: _Looked) -> Iterator[Line]:
    tasks = looked.tasks[:TASKS]
    if not tasks:
        return
    for task in tasks:
        probe = probe_task(task)
        if not probe.valid:
            yield Line("tasks", "warning", f"a task is {probe.verdict}: {probe.reason} ({task.prompt[:60]!r})", LEFT_OUT)
            return
    yield Line("tasks", "ok", f"{len(tasks)} played: doing nothing fails, and two runs agree")


def _reward(looked: _Looked) -> Iterator[Line]:
    """What no work earns under the rubric that is trained on; a part that its objectives name is there."""
    if not looked.tasks:
        return
    if held_back := looked.config.evaluation.rubric:  # its parts are there, too
        idle_reward(held_back, looked.tasks, 1.0, IDLE_SECONDS)
    found = idle_reward(looked.config.rubric, looked.tasks, looked.config.audit.max_idle_reward, IDLE_SECONDS)
    says = f"without any work: {found['says']}"
    if found["reasons"]:
        yield Line("reward", "error", f"{'; '.join(found['reasons'])}; {says}", IDLE_ADVICE)
    elif found["share"] is None:
        yield Line("reward", "skipped", found["says"])
    else:
        yield Line("reward", "warning" if found["share"] > 0 else "ok", says, IDLE_ADVICE if found["share"] > 0 else "")


def _base(looked: _Looked) -> Iterator[Line]:
    folder = base_folder(str(looked.config.policy.base))
    looked.has_base = True
    yield from _memory(folder)


def _template(looked: _Looked) -> Iterator[Line]:
    if not looked.has_base:
        return
    policy = looked.config.policy
    chosen = None if policy.tool_format == "auto" else policy.tool_format
    check, _ = check_base(Checked(str(policy.base), chosen, policy.chat_template, policy.template_options))
    if check.trainable:
        yield Line("template", "ok", check.says())
    else:
        yield Line("template", "error", "; ".join(check.reasons), f"tracewheel stage check-template {policy.base}")


def _prompts(looked: _Looked) -> Iterator[Line]:
    if not looked.tasks or not looked.has_base:
        return
    warning = check_prompts(RolloutSections.of(looked.config), looked.tasks)
    says = f"leave room for turns of {looked.config.rollout.max_turn_tokens} tokens in {looked.config.rollout.max_tokens}"
    yield Line("prompts", "warning" if warning else "ok", warning or says)


def _memory(folder: Path) -> Iterator[Line]:
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    free = available()
    if not weights or free is None:
        yield Line("base", "ok", str(folder))
        return
    says = f"{weights / GIB:.2f} GiB of weights, {free / GIB:.1f} GiB of memory free"
    if 2 * weights > free:
        yield Line("base", "error", says, "a run needs more than twice the weights: take a smaller base, or free memory")
    else:
        yield Line("base", "ok", says)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
