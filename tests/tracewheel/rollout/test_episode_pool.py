"""Episodes whose tools run in threads: the same trajectories, no blocking, and errors that propagate."""

import dataclasses
import threading
import time

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import Turn, token_versions
from tracewheel.environments import wanted_threads
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.rollout import episode_pool
from tracewheel.rollout.episode import EpisodeSpec
from tracewheel.rollout.episode_pool import EpisodePool
from tracewheel.rollout.rollout import RolloutPlan, run_episodes, tool_threads

ROOMY = RolloutConfig(max_tokens=4000, max_turn_tokens=1000)
PAUSE = 0.05  # seconds


class Slow(WorkspaceEnvironment):
    """Waits before every call."""

    def step(self, tool, args):
        time.sleep(PAUSE)
        return super().step(tool, args)


class BreaksOnMove(WorkspaceEnvironment):
    def step(self, tool, args):
        if tool == "move_file":
            raise TimeoutError("the file server is gone")
        return super().step(tool, args)


class BreaksAtReset(WorkspaceEnvironment):
    def reset(self, task):
        raise ConnectionError("no container")


class Waits(WorkspaceEnvironment):
    """Every call waits until the test releases it."""

    go_on = threading.Event()

    def step(self, tool, args):
        assert self.go_on.wait(30)
        return super().step(tool, args)


def threaded(config=ROOMY, count=64):
    return config.model_copy(update={"tool_threads": count})


def in_environment(task, kind):
    return dataclasses.replace(task, environment=give(f"{__name__}:{kind.__name__}"))


@pytest.fixture
def play(scripted_engine, renderer, solution_words):
    """Run the solutions of tasks in an environment; returns the trajectories and the seconds."""

    def run(tasks, config, kind=WorkspaceEnvironment, samples=1, **options):
        wanted = [in_environment(task, kind) for task in tasks]
        engine = scripted_engine(renderer, [solution_words(task) for task in wanted for _ in range(samples)], **options)
        started = time.monotonic()
        found = run_episodes(engine, renderer, config, RolloutPlan(wanted, samples=samples, seed=0))
        return found, time.monotonic() - started

    return run


def tool_threads_alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("tool")]


@pytest.mark.parametrize("count", [1, 4, 64])
def test_threads_change_no_trajectory(play, tasks, count):
    """The stored bytes are the same in whatever order tools return."""
    assert play(tasks, threaded(count=count), samples=3) == (play(tasks, ROOMY, samples=3)[0], pytest.approx(0, abs=60))


def test_quick_tools_are_waited_for_in_their_order(play, tasks, monkeypatch):
    """Then each pass of the engine has the same sessions, so that its rounding is the same: as in one thread."""
    monkeypatch.setattr(episode_pool, "QUICK_SECONDS", 30.0)  # on a busy machine nothing is quick
    monkeypatch.setattr(episode_pool, "IDLE_SECONDS", 30.0)
    turns = []

    def recorded(engine):
        turns[-1].append({session: len(ids) for session, ids in engine.ids.items()})

    for config in (ROOMY, threaded(count=16), threaded(count=16)):
        turns.append([])
        play(tasks, config, samples=3, on_turn=recorded)
    assert turns[0] == turns[1] == turns[2]


def test_slow_tools_run_in_parallel(play, tasks):
    """64 episodes take as long as the longest of them, not as long as their sum."""
    found, seconds = play(tasks[:8], threaded(), Slow, samples=8)
    assert len(found) == 64 and {trajectory.stop_reason for trajectory in found} == {"finished"}
    calls = [len(trajectory.turns) for trajectory in found]
    assert seconds < PAUSE * sum(calls) / 4
    assert seconds >= PAUSE * max(calls)


class Undeclared(Slow):
    """Says nothing of how long its calls take."""

    tool_threads = None


def test_an_environment_says_how_many_threads_its_calls_want(play, tasks):
    """With the profile's default; one thread would take the sum of all calls."""
    found, seconds = play(tasks[:8], ROOMY, Undeclared, samples=8)
    calls = [len(trajectory.turns) for trajectory in found]
    assert PAUSE * max(calls) <= seconds < PAUSE * sum(calls) / 4
    assert [wanted_threads(kind, 64) for kind in ("mcp", "workspace", "recorded:x")] == [64, 0, 0]
    talking = [kind_text("refund_desk", {"user": {"kind": kind}}) for kind in ("scripted", "endpoint")]
    assert [wanted_threads(kind, 64) for kind in talking] == [0, 64], "a user who is a model takes time"


def test_a_failing_tool_ends_only_its_own_episode(play, tasks):
    broken, _ = play(tasks, threaded(), BreaksOnMove)
    assert {trajectory.stop_reason for trajectory in broken} == {"infrastructure_failed"}
    assert {trajectory.detail for trajectory in broken} == {"TimeoutError: the file server is gone"}
    assert broken == play(tasks, ROOMY, BreaksOnMove)[0]


def test_a_failing_reset_ends_only_its_own_episode(scripted_engine, renderer, tasks, solution_words):
    mixed = [in_environment(task, BreaksAtReset if n % 2 else WorkspaceEnvironment) for n, task in enumerate(tasks[:4])]

    def run(config):
        engine = scripted_engine(renderer, [solution_words(task) for task in mixed])
        return run_episodes(engine, renderer, config, RolloutPlan(mixed, samples=1, seed=0)), engine

    found, engine = run(threaded())
    assert [trajectory.stop_reason for trajectory in found] == ["finished", "infrastructure_failed"] * 2
    assert found[1].detail == "ConnectionError: no container" and found[1].turns == []
    assert sorted(engine.closed) == [0, 2], "who never spoke has no session"
    assert found == run(ROOMY)[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_rollout_that_fails_leaves_no_thread_waiting(scripted_engine, renderer, tasks, solution_words, error):
    """Running calls finish; calls that have not begun are not executed."""
    Waits.go_on.clear()
    carried_out = []

    def fails(engine):
        carried_out.append(len(tool_threads_alive()))
        if len(carried_out) == 6:
            raise error("in the middle")

    some = [in_environment(task, Waits) for task in tasks]
    engine = scripted_engine(renderer, [solution_words(task) for task in some], on_turn=fails)
    with pytest.raises(error):
        run_episodes(engine, renderer, threaded(count=2), RolloutPlan(some, samples=1, seed=0))
    assert tool_threads_alive(), "it comes out without waiting for the tools"
    Waits.go_on.set()
    for thread in tool_threads_alive():
        thread.join(10)
    assert tool_threads_alive() == []


def test_without_threads_and_limits_environments_are_called_in_the_callers_thread(play, tasks):
    unlimited = ROOMY.model_copy(update={"step_seconds": None, "episode_seconds": None})
    with tool_threads(unlimited) as tools:
        assert tools is None
    assert play(tasks, unlimited, samples=3)[0] == play(tasks, ROOMY, samples=3)[0]


def test_episodes_are_open_until_step_returns_them(scripted_engine, renderer, tasks, solution_words):
    Waits.go_on.clear()
    with tool_threads(threaded(count=4)) as tools:
        engine = scripted_engine(renderer, [["Enough."], solution_words(tasks[1])])
        pool = EpisodePool(engine, renderer, ROOMY, tools)
        pool.begin(0, EpisodeSpec(tasks[0], 0, 1, 1.0))
        pool.begin(1, EpisodeSpec(in_environment(tasks[1], Waits), 0, 2, 1.0))
        assert pool.open == 2
        ended = []
        while not ended:
            ended = pool.step()
        assert [number for number, _ in ended] == [0] and pool.open == 1
        assert ended[0][1].stop_reason == "no_tool_call"
        started = time.monotonic()
        while not engine.idle:
            assert pool.step() == []
        assert pool.step() == [] and time.monotonic() - started < 10, "a step waits a little, not for ever"
        Waits.go_on.set()
        while pool.open:
            ended += pool.step()
    assert [(number, trajectory.seed) for number, trajectory in ended] == [(0, 1), (1, 2)]


def test_new_weights_within_a_turn_are_marked_at_their_first_token(scripted_engine, renderer, tasks, call_text):
    """The first turn is all of version 4; the second changes to 5 at its third token and to 6 at its last."""

    class Changing(type(scripted_engine(renderer, []))):
        def step(self):
            (generation,) = super().step()
            count = len(generation.token_ids)
            changing = [4, 4, *[5] * (count - 3), 6]
            versions = [4] * count if len(self.spoken) == 0 else changing
            self.spoken.append(count)
            return [dataclasses.replace(generation, versions=versions)]

    engine = Changing(renderer, [[call_text("list_files", path="/"), "I am done now."]], policy_version=6)
    engine.spoken = []
    (trajectory,) = run_episodes(engine, renderer, ROOMY, RolloutPlan(tasks[:1], samples=1, seed=0))
    first, second = trajectory.turns
    start, end = second["start"], second["end"]
    assert end - start > 4
    assert (first["policy_version"], first["changes"]) == (4, [])
    assert (second["policy_version"], second["changes"]) == (4, [[start + 2, 5], [end - 1, 6]])
    assert trajectory.policy_version == 4
    versions = trajectory.token_versions()
    assert versions[first["start"] : first["end"]] == [4] * (first["end"] - first["start"])
    assert versions[start:end] == [4, 4, *[5] * (end - start - 3), 6]
    assert [version == -1 for version in versions] == [mask == 0 for mask in trajectory.action_mask]


def test_token_versions_match_values_worked_by_hand():
    turns = [
        {"start": 2, "end": 5, "policy_version": 3, "changes": [[4, 4]]},
        {"start": 7, "end": 8, "policy_version": 4, "changes": []},
        {"start": 8, "end": 10, "policy_version": 4},
    ]
    assert token_versions(turns, 11) == [-1, -1, 3, 3, 4, -1, -1, 4, 4, 4, -1]
    assert token_versions([], 3) == [-1, -1, -1]
    assert Turn(0, 5, 1, 0, 7, changes=[[2, 5], [3, 6]]).oldest_version == 5
    assert Turn(0, 5, 1, 0, 7).oldest_version == 7
