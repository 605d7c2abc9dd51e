"""Tokens, steps and pairs of hand-made trajectories."""

from tracewheel.dashboard.token_view import Tokens, TokenTexts
from tracewheel.dashboard.transcript import aligned, how_it_differs, parts_of, state_changes, transcript_of

TOOLS = [{"type": "function", "function": {"name": "move", "parameters": {"type": "object", "required": ["to"]}}}]


def call(name, arguments, number="c"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def episode(*replies, arguments='{"to": "/a"}'):
    """Two turns that make the same call id, as rollouts do."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    for reply in replies:
        messages.append({"role": "assistant", "content": None, "tool_calls": [call("move", arguments)]})
        messages.append({"role": "tool", "tool_call_id": "c", "content": reply})
    turns = [
        {"start": 2 + 3 * n, "end": 4 + 3 * n, "calls": 1, "malformed": 0, "policy_version": n, "changes": []}
        for n in range(len(replies))
    ]
    return {"messages": messages, "turns": turns, "turn_rewards": None}


def test_each_turn_has_its_own_reply_though_ids_repeat():
    steps = transcript_of(episode("first", "error: second"), TOOLS)
    assert [(step.role, step.turn) for step in steps] == [("system", None), ("user", None), ("assistant", 0), ("assistant", 1)]
    assert [one.reply for step in steps for one in step.calls] == ["first", "error: second"]
    assert [one.failed for step in steps for one in step.calls] == [False, True]
    assert (steps[3].start, steps[3].end, steps[3].versions) == (5, 7, [1])
    assert transcript_of(episode("x", arguments="{}"), TOOLS)[2].calls[0].trouble == "no 'to'"
    assert transcript_of(episode("x", arguments="{"), TOOLS)[2].calls[0].trouble == "arguments are no JSON"
    strange = {"messages": [{"role": "assistant", "content": "", "tool_calls": [call("fly", "{}")]}], "turns": []}
    assert transcript_of(strange, TOOLS)[0].calls[0].trouble == "no such tool"
    assert transcript_of(strange, [])[0].calls[0].trouble == ""
    assert transcript_of({"messages": "not readable", "turns": None}, TOOLS) == []


def test_two_trajectories_part_at_the_first_step_that_differs():
    one, other = (transcript_of(episode("a", reply, "c"), TOOLS) for reply in ("b", "B"))
    rows = aligned(one, other)
    assert [row.kind for row in rows] == ["same", "same", "same", "differs", "after"]
    assert how_it_differs(rows) == "Both make the same call of move, and get different replies."
    assert how_it_differs(aligned(one, one)) == ""
    short = aligned(one, one[:3])
    assert short[3].right is None and how_it_differs(short) == "The left one goes on where the other has ended."
    elsewhere = transcript_of(episode("a", arguments='{"to": "/b"}'), TOOLS)
    assert how_it_differs(aligned(one, elsewhere)) == "Both call move, with different arguments."


def test_tokens_of_a_tree():
    found = {
        "token_ids": [5, 6, 7, 8, 9, 10],
        "action_mask": [0, 0, 1, 1, 0, 1],
        "logprobs": [0.0, 0.0, -0.001, -5.0, 0.0, -0.5],
        "turns": [
            {"start": 2, "end": 4, "policy_version": 3, "changes": [[3, 4]]},
            {"start": 5, "end": 6, "policy_version": 4, "changes": []},
        ],
        "forks": [[4, 1]],
    }
    tokens = Tokens.of(found, [0.5, -2.0])
    texts = TokenTexts(None, "")
    assert tokens.seen_before(5) == [0, 1, 4] and tokens.seen_before(3) == [0, 1, 2] and tokens.seen_before(0) == []
    assert [token.kind for token in tokens.shown(texts, "logprob", 0)] == ["no", "no", "p0", "p5", "no", "p2"]
    assert [token.kind for token in tokens.shown(texts, "advantage", 0)] == ["no", "no", "a5", "a5", "no", "a0"]
    assert [token.kind for token in tokens.shown(texts, "version", 0)] == ["no", "no", "v0", "v1", "no", "v1"]
    assert [token.forks for token in tokens.shown(texts, "mask", 0)] == [None, None, None, None, 1, None]
    assert [token.at for token in tokens.shown(texts, "mask", 2, 2)] == [2, 3] and texts.together([5, 6]) == "5 6"
    assert "advantage" in tokens.views() and "advantage" not in Tokens.of(found).views()
    assert tokens.said(3) == "token 3, id 8, log-probability -5.0000, policy version 4, advantage +0.500"
    for view in tokens.views():
        assert {token.kind for token in tokens.shown(texts, view, 0)} <= {kind for kind, _ in tokens.legend(view)}


def test_parts_of_a_score_and_changes_of_a_state():
    assert [part.name for part in parts_of({"b": 1, "flawed_penalty": -0.1, "success": 0, "a": 0.5})] == [
        "success",
        "a",
        "b",
        "flawed_penalty",
    ]
    assert parts_of(None) == []
    changes = state_changes({"files": {"a": "1", "b": "2"}}, {"files": {"b": "3", "c": ""}})
    assert changes == [("gone", "files.a", "1", None), ("changed", "files.b", "2", "3"), ("added", "files.c", None, "")]
