"""Branches of hand-made episodes: whom they parted from, what differs, and which rows of tokens they are."""

import pytest

from tracewheel.dashboard.branches import branches_of, rows_of
from tracewheel.dashboard.pictures import tree_picture
from tracewheel.dashboard.token_view import Tokens, TokenTexts
from tracewheel.dashboard.transcript import transcript_of

SYSTEM, USER = {"role": "system", "content": "S"}, {"role": "user", "content": "u"}


def user(text):
    return {"role": "user", "content": text}


def said(text, thinking=None):
    return {"role": "assistant", "content": text} | ({"reasoning_content": thinking} if thinking else {})


def episode(branches, turns=4, **more):
    """Branches of (reason, turns, messages), whose turns have two tokens each."""
    stored = [
        {"reason": reason, "agent": more.get("agents", {}).get(number, ""), "turns": own, "messages": messages, "foreign": 0}
        for number, (reason, own, messages) in enumerate(branches)
    ]
    spans = [{"start": 2 * at, "end": 2 * at + 2, "policy_version": 1, "credit": more.get("credit")} for at in range(turns)]
    return {"branches": stored, "turns": spans, "messages": stored[-1]["messages"], "turn_rewards": None}


def kinds(branch):
    return [each.kind for each in branch.steps]


def test_compaction_leaves_turns_out():
    one, two, three = said("one"), said("two"), said("three")
    found = episode(
        [
            ("", [0, 1], [SYSTEM, USER, one, user("x"), two]),
            ("compaction", [2, 3], [SYSTEM, USER, user("short"), two, user("y"), three, user("z"), said("four")]),
        ]
    )
    first, second = branches_of(found, [], shown=4)
    assert (first.parent, second.parent, second.shared, second.shared_turns) == (None, 0, 2, 0)
    assert kinds(second) == ["same", "same", "new", "same", "new", "said", "said", "said"]
    (gap,) = [each.left_out for each in second.steps if each.left_out]
    assert gap == [("assistant", "one"), ("user", "x")]
    assert [each.step.turn for each in second.steps if each.step.turn is not None] == [2, 3]
    assert [step.turn for step in transcript_of(found, []) if step.turn is not None] == [2, 3], "those of the last branch"


def test_an_edit_and_thinking_that_is_left_out():
    for reason, back, kind in (("edited", said("one TWO"), "edited"), ("thinking_stripped", said("one"), "unthought")):
        found = episode(
            [
                ("", [0], [SYSTEM, USER, said("one", "hm")]),
                (reason, [1], [SYSTEM, USER, back, user("x"), said("b")]),
            ],
            2,
        )
        second = branches_of(found, [], shown=2)[1]
        assert kinds(second) == ["same", "same", kind, "new", "said"]
        assert second.steps[2].before == "hm\none" and not any(each.left_out for each in second.steps)


def test_a_retry_is_no_edit_and_a_sub_agent_has_no_parent():
    retry = episode([("", [0], [USER, said("bad")]), ("retry", [1], [USER, said("good")])], 2)
    assert kinds(branches_of(retry, [], shown=2)[1]) == ["same", "said"]
    plan = [SYSTEM, USER, said("plan")]
    left = [{"role": "system", "content": "L"}, user("plan"), said("left")]
    found = episode(
        [("", [0, 2], [*plan, user("ok"), said("done")]), ("sub_agent", [1], left)], 3, agents={1: "left"}, credit=""
    )
    main, sub = branches_of(found, [], shown=2)
    assert (sub.parent, sub.agent, sub.credit, main.turns) == (None, "left", "no", [0, 2])
    picture = str(tree_picture([main, sub]))
    assert picture.count("<circle") == 3 and picture.count("nobodys") == 3 and "sub agent · left" in picture
    assert "way" not in picture, "what shares nothing begins by itself"


def test_only_those_asked_for_have_steps():
    found = episode([("", [0], [USER, said("a")]), *(("retry", [at], [USER, said(str(at))]) for at in range(1, 30))], 30)
    assert [each.number for each in branches_of(found, [], 8, 4) if each.steps] == [8, 9, 10, 11]
    assert "longest" in str(tree_picture(branches_of(found, [])))
    assert branches_of({"branches": [], "turns": [], "messages": []}, []) == []


@pytest.fixture
def roots():
    """Three rows: one that begins anew, one that shares the first two tokens."""
    return {
        "token_ids": [5, 6, 7, 8, 9, 10, 11],
        "action_mask": [0, 0, 1, 0, 1, 0, 1],
        "logprobs": [0.0, 0.0, -1.0, 0.0, -1.0, 0.0, -1.0],
        "turns": [{"start": at, "end": at + 1, "policy_version": 0} for at in (2, 4, 6)],
        "forks": [[3, -1], [5, 1]],
        "branches": [{"reason": "", "turns": [0]}, {"reason": "sub_agent", "turns": [1]}, {"reason": "retry", "turns": [2]}],
    }


def test_rows_of_a_tree_with_several_roots(roots):
    found = rows_of(roots)
    assert [(row.tokens, row.sampled, row.own, row.shared, row.with_row) for row in found] == [
        (3, 1, 1, 0, None),
        (2, 1, 1, 0, None),
        (4, 1, 1, 2, 0),
    ]
    assert [(row.turns, row.branches) for row in found] == [([0], [0]), ([1], [1]), ([2], [2])]
    assert rows_of({**roots, "forks": [], "branches": []}) == []
    tokens, texts = Tokens.of(roots), TokenTexts(None, "")
    assert [token.forks for token in tokens.shown(texts, "mask", 0)] == [None, None, None, -1, None, 1, None]
    assert [token.at for token in tokens.shown(texts, "mask", 0, row=2)] == [0, 1, 5, 6]
    assert [token.kind for token in tokens.shown(texts, "mask", 2, row=2)] == ["no", "m"]
    assert tokens.seen_before(4) == [3] and tokens.seen_before(6) == [0, 1, 5]
