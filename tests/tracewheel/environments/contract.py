"""What every environment with a task generator promises, as checks of a kind: of the core, or of a wheel."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tracewheel.core.kinds import kind_text
from tracewheel.core.types import canonical_json
from tracewheel.environments import (
    NearMisser,
    Restorable,
    TaskMaker,
    close_environment,
    make_environment,
    share_resources,
)
from tracewheel.environments.base import play_calls, repeat, turn_messages
from tracewheel.scoring.verifiers import episode_from, make_verifier, verdict_of

SEED = 20
QUICK, THOROUGH = 16, 200
LIMITS = {"limits": {"seconds": 120.0}}  # a box among many waits for its turn, and may be slow


def opened(kind):
    environment = make_environment(kind)
    share_resources(environment, kind)
    return environment


def reward(environment, task, calls):
    """The verifier's total after these calls from the task's start."""
    messages = play_calls(environment, task, calls)
    return judged(environment, task, messages)


def judged(environment, task, messages):
    state = environment.snapshot()
    start = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return verdict_of(make_verifier(task.verifier), task, state, lambda: episode_from(messages, start, state)).total


def check_rewards(kind, n=QUICK):
    environment = opened(kind)
    tasks = environment.make_tasks(n, SEED)
    assert len({task.fingerprint for task in tasks}) == n
    assert {task.family for task in tasks} == set(environment.families)
    assert {task.tier for task in tasks} == set(environment.tiers)
    assert [task.id for task in tasks] == [task.id for task in opened(kind).make_tasks(n, SEED)]
    wrong = []
    for task in tasks:
        assert reward(environment, task, environment.solution(task)) == 1.0, task
        assert reward(environment, task, []) == 0.0, task
        misses = environment.near_misses(task)
        wrong += [(task.id, name) for name, calls in misses.items() if reward(environment, task, calls) != 0.0]
        assert misses or n < THOROUGH, task
    close_environment(environment)
    assert wrong == []


def check_snapshots(kind):
    first, second = opened(kind), opened(kind)
    assert isinstance(first, TaskMaker) and isinstance(first, Restorable) and isinstance(first, NearMisser)
    for task in first.make_tasks(QUICK, SEED):
        misses = first.near_misses(task)
        missed = random.Random(task.id).choice(sorted(misses)) if misses else ""
        for calls, total in ((first.solution(task), 1.0), (misses.get(missed, []), 0.0)):
            middle = random.Random(task.id).randint(0, max(0, len(calls) - 1))
            messages = play_calls(first, task, calls[:middle])
            second.restore(task, json.loads(canonical_json(first.snapshot())))
            assert canonical_json(second.snapshot()) == canonical_json(first.snapshot())
            for number, (tool, args) in enumerate(calls[middle:], middle):
                observation = repeat(second, tool, args)
                messages += turn_messages(number, tool, args, None if observation.done else observation.text)
                if observation.done:
                    break
            assert judged(second, task, messages) == total, (task, missed)


def unhurried(task):
    """The task with more time for its verifier's box."""
    has_limits = task.verifier in ("unit_tests", "check_script")
    return replace(task, verifier=kind_text(task.verifier, LIMITS)) if has_limits else task


def check_sixty_four(kind):
    """Episodes in sixty-four threads, in any order, are as one at a time."""
    maker = opened(kind)
    spec = kind_text(kind, {"sandbox": LIMITS}) if kind in ("code", "terminal") else kind
    plays = []
    for task in map(unhurried, maker.make_tasks(QUICK, SEED)):
        ways = {"solved": maker.solution(task), "nothing": [], **maker.near_misses(task)}
        plays += [(task, calls) for calls in list(ways.values())[:4]]
    alone = [reward(opened(spec), task, calls) for task, calls in plays]
    order = list(range(len(plays)))
    random.Random(SEED).shuffle(order)
    with ThreadPoolExecutor(64) as pool:
        together = dict(zip(order, pool.map(lambda place: reward(opened(spec), *plays[place]), order), strict=True))
    assert [together[place] for place in range(len(plays))] == alone
