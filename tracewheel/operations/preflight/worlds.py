"""The environment of a profile and the tasks that logs give there: threads, components, probes, what no work earns."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tracewheel.core.errors import ConfigError
from tracewheel.core.own_code import described, named
from tracewheel.curation.duplicates import DuplicateFinder
from tracewheel.curation.fitting import TOO_LARGE, component_words, describe_components
from tracewheel.curation.leaks import linking_clusters
from tracewheel.curation.probes import probe_task
from tracewheel.curation.splits import components
from tracewheel.environments import open_environment
from tracewheel.environments.recorded.calls import parsed_arguments
from tracewheel.evaluation.idle_reward import ADVICE as IDLE_ADVICE
from tracewheel.evaluation.idle_reward import idle_reward, tried_calls
from tracewheel.operations.preflight.line import FEW, Line, Looked, counted
from tracewheel.rollout.rollout import with_threads

TASKS = 3  # how many are played
IDLE_SECONDS = 1.0  # for episodes without work
NEEDED = ("tools", "task_from_log", "reset", "step", "snapshot")
LEFT_OUT = "curation leaves such tasks out; if all are, nothing is left to train on"


def check_environment(looked: Looked) -> Iterator[Line]:
    kind = looked.config.environment.spec
    with open_environment(kind) as environment:
        if missing := [name for name in NEEDED if not callable(getattr(environment, name, None))]:
            raise ConfigError(f"environment '{looked.config.environment.kind}' has no method {', '.join(missing)}")
        tools = environment.tools()
    yield Line("environment", "ok", f"{looked.config.environment.kind}: {counted(len(tools), 'tool')}")


def check_made_up_calls(looked: Looked) -> Iterator[Line]:
    """What `step` raises at calls with made-up arguments, such as a policy tries: ids that are not there, empty texts."""
    raised: list[str] = []
    if not looked.tasks:
        return
    with open_environment(looked.config.environment.spec) as environment:
        for call in tried_calls(environment, looked.tasks[0]):
            environment.reset(looked.tasks[0])
            try:
                environment.step(*call)
            except Exception as error:
                if described(error) is None:
                    raise
                raised.append(f"{call[0]}: {named(error)}")
    if raised:
        yield Line(
            "made-up calls",
            "warning",
            f"{counted(len(raised), 'call')} with made-up arguments end the episode without a score; {raised[0]}",
            'where that is the tool\'s answer to the agent, raise ToolError, or set `exceptions = "observation"` on the class',
        )


def check_threads(looked: Looked) -> Iterator[Line]:
    """Whether an environment that is called in several threads can be: an episode's calls come from any of them."""
    kind = looked.config.environment.spec
    threads = with_threads(looked.config.rollout, [kind], looked.config.episodes_per_iteration).tool_threads
    if threads <= 1 or not looked.replays:
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
                    "make what is tied to a thread usable in others (sqlite3: check_same_thread=False), or set "
                    "rollout.tool_threads to 1",
                )
                return
    yield Line("threads", "ok", f"{threads}; an episode's calls may come from any of them")


def check_components(looked: Looked) -> Iterator[Line]:
    """Whether train, validation and test can be kept apart: tasks with a common user, session or copy stay on one side."""
    import pandas

    if len(looked.tasks) < FEW:
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
    says = f"{len(looked.tasks)} tasks hang together in {counted(parts['count'], 'component')}"
    if parts["largest"]["share"] > TOO_LARGE:
        yield Line("components", looked.worst if parts["count"] < 3 else "warning", says, component_words(parts))
    else:
        yield Line("components", "ok", says)


def check_probes(looked: Looked) -> Iterator[Line]:
    tasks = looked.tasks[:TASKS]
    if not tasks:
        return
    for task in tasks:
        probe = probe_task(task)
        if not probe.valid:
            yield Line("tasks", "warning", f"a task is {probe.verdict}: {probe.reason} ({task.prompt[:60]!r})", LEFT_OUT)
            return
    yield Line("tasks", "ok", f"{len(tasks)} played: doing nothing fails, and two runs agree")


def check_reward(looked: Looked) -> Iterator[Line]:
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
