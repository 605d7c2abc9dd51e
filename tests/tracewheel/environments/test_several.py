"""Several environments in one profile: each log and each task goes to its own."""

import json
import random
from datetime import UTC, datetime

import pytest

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import Trace
from tracewheel.curation.replay import replay_trace
from tracewheel.environments import make_environment, member_for, open_environment
from tracewheel_projects import played_record

KINDS = ("workspace", "order_desk", "refund_desk")
SPEC = kind_text("several", {"members": [{"kind": kind} for kind in KINDS]})


def trace_of(task):
    calls = make_environment(task.environment).solution(task)
    about = {"episode": "0" * 12, "model": "m", "user": "u", "session": "s", "time": datetime(2026, 11, 1, tzinfo=UTC)}
    record = played_record(task, calls, random.Random(0), **about)
    held = {name: record[name] for name in ("id", "messages", "tools", "environment", "session", "user", "created", "model")}
    return Trace(**held, outcome=None, source_file="logs.jsonl", source_line=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_replayed_in_the_environment_that_it_names(kind):
    task = make_environment(kind).make_tasks(1, 0)[0]
    with open_environment(SPEC) as several:
        replay = replay_trace(trace_of(task), several)
        assert replay.success == 1.0 and replay.task.environment == kind
        assert several.solution(task) == make_environment(kind).solution(task)
        assert member_for(several, kind).kind == kind and member_for(several, "math") is None


def test_the_log_of_another_environment_is_left_out_with_its_reason():
    task = make_environment("examples.marketing_environment:Marketing").make_tasks(1, 0)[0]
    with open_environment(SPEC) as several:
        with pytest.raises(DataError, match="another environment"):
            replay_trace(trace_of(task), several)
        with pytest.raises(ConfigError, match="Marketing"):
            several.reset(task)


def test_its_tools_are_those_of_all_members():
    names = {tool["function"]["name"] for tool in make_environment(SPEC).tools()}
    assert names == {tool["function"]["name"] for kind in KINDS for tool in make_environment(kind).tools()}


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([{"kind": "workspace"}], "at least 2"),
        ([{"kind": "workspace"}, {"kind": "workspace"}], "named twice"),
        ([{"kind": "workspace"}, {"kind": "recorded:logs"}], "train on it alone"),
        ([{"kind": "workspace"}, {"kind": "nothing"}], "nothing"),
        ([{"kind": "workspace"}, {"kind": "order_desk", "args": {"people": 3}}], "people"),
    ],
)
def test_members_that_cannot_be_used_are_refused(members, said):
    give("recorded:logs")
    with pytest.raises(ConfigError, match=said):
        make_environment(json.dumps({"kind": "several", "args": {"members": members}}))
