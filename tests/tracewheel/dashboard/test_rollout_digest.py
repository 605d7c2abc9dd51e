"""Digests of stored rollouts, against what their files hold."""

import pytest

from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.rollout_digest import Digest, _look, digest, digests_within, together
from tracewheel.dashboard.sources import sources_of
from tracewheel.scoring.flaws import offered_tools


@pytest.fixture(scope="module")
def rollouts(library, run_ids):
    return [one for one in sources_of(library.run("demo", run_ids[-1])) if one.kind == "rollout"]


def test_every_episode_is_counted_once(rollouts):
    (rows,) = Episodes(rollouts[:1]).rows("SELECT count(*) n, count(*) FILTER (outcome = 'solved') solved FROM {episodes}")
    found = digest(rollouts[0], offered_tools("workspace"))
    assert found.episodes == found.read == rows["n"]
    assert found.outcomes["solved"] == rows["solved"]
    assert sum(sum(counts.values()) for counts in found.lengths.values()) == rows["n"]
    assert sum(found.first_trouble.values()) == found.outcomes["failed"] + found.outcomes["partial"]


def test_of_a_large_result_whole_groups_are_read_and_all_stop_reasons_counted(rollouts):
    found = digest(rollouts[0], None, most=8)
    assert found.read == 8
    assert sum(found.reasons.values()) == found.episodes > 8
    assert found.groups <= 8


def test_one_digest_is_made_even_without_time_and_the_known_ones_cost_nothing(rollouts):
    found = digests_within(rollouts, frozenset({"none"}), seconds=0.0)
    assert len(found) == 1
    for _ in rollouts:
        found = digests_within(rollouts, frozenset({"none"}), seconds=0.0)
    assert len(found) == len(rollouts)
    assert together(found.values()).episodes == sum(one.episodes for one in found.values())


def test_a_failure_first_errs_where_its_first_error_or_invented_call_is():
    def call(name, reply):
        asked = {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        return [{"role": "assistant", "tool_calls": [asked]}, {"role": "tool", "tool_call_id": name, "content": reply}]

    messages = [{"role": "user", "content": "go"}, *call("look", "fine"), *call("fly", "error: no such tool")]
    turns = [{"calls": 1, "malformed": 0}, {"calls": 1, "malformed": 0}]
    found = Digest()
    _look(found, {"id": "a", "stop_reason": "finished", "outcome": "failed"}, messages, turns, frozenset({"look"}))
    assert found.first_trouble == {2: 1}
    assert (found.calls, found.errors, found.invented) == ({"look": 1, "fly": 1}, {"fly": 1}, {"fly": 1})
