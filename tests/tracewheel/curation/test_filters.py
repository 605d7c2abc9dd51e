"""The filter language: rows kept, missing values, errors with their place, and that it runs no code."""

import math
import operator

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.errors import ConfigError
from tracewheel.curation.filters import Filter

NAN = float("nan")
TASKS = pandas.DataFrame(
    {
        "id": ["a", "b", "c", "d", "e"],
        "pass_rate": [0.0, 0.5, 0.9, NAN, 0.25],
        "attempts": [4, 4, 8, 0, 2],
        "family": ["list", "prefix", "list", "content", None],
        "fresh": [True, False, True, True, False],
    }
)


def kept(text):
    return "".join(TASKS["id"][Filter(text).keep(TASKS)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "abcde"),
        ("  ", "abcde"),
        ("0 < pass_rate < 0.6 and attempts >= 4", "b"),
        ("0 < pass_rate < 0.6", "be"),
        ("not pass_rate > 0.3", "ae"),  # not d: an unscored task matches neither
        ("pass_rate <= 0.3 or attempts == 0", "ade"),
        ("pass_rate != pass_rate", ""),
        ("family in ['list', 'content']", "acd"),
        ("family not in ('list', 'content')", "b"),
        ("family == 'list' and fresh", "ac"),
        ("not fresh", "be"),
        ("True", "abcde"),
        ("pass_rate * attempts >= 2", "bc"),
        ("attempts / 2 - 1 == 1 and -pass_rate <= 0", "ab"),
        ("1 / attempts > 0.2", "abde"),
        ("(attempts > 4 or fresh) and not (pass_rate > 0.8)", "a"),
        ("pass_rate > 0.8 or fresh", "acd"),
        ("4 <= attempts", "abc"),
        ("1 < 2", "abcde"),
    ],
)
def test_matching_tasks_are_kept(text, expected):
    assert kept(text) == expected


@pytest.mark.parametrize(
    ("text", "why", "place"),
    [
        ("pass_rate <", "this is no filter", None),
        ("attempts >= 4 and pass_rat < 1", "do you mean 'pass_rate'", 18),
        ("attempts", "neither true nor false", 0),
        ("attempts >= 4 and len(id) > 2", "'len(id)' has no place here", 18),
        ("id.upper() == 'A'", "no place here", 0),
        ("__import__('os').system('x') == 0", "no place here", 0),
        ("attempts[0] > 1", "no place here", 0),
        ("attempts ** 99 > 1", "no place here", 0),
        ("(lambda: 1) == 1", "no place here", 1),
        ("[x for x in id] == 1", "no place here", 0),
        ("f'{id}' == 'a'", "no place here", 0),
        ("attempts is None", "compare with", 0),
        ("family in 'list'", "behind 'in' stands a list", 10),
        ("family == ['list']", "compare with", 0),
        ("fresh and attempts + 1", "expected", 10),
        ("family < 3", "cannot be compared", 0),
        ("family * 2 > 3", "no number", 0),
        ("pass_rate > 0.5 and attempts = 4", "this is no filter", None),
        ("4", "expected", 0),
        ("'é' == family and (x > 1)", "no column 'x'", 19),
        ("attempts > 4j", "no place here", 11),
        ("fresh\nand fresh", "one line", None),
    ],
)
def test_errors_point_at_the_place(text, why, place):
    with pytest.raises(ConfigError, match="curation.filter") as caught:
        Filter(text).keep(TASKS)
    message = str(caught.value)
    assert why.replace("\\", "") in message
    if place is not None:
        assert message.splitlines()[-1] == "  " + " " * place + "^"
        assert message.splitlines()[-2] == f"  {text}"


def test_a_dry_run_counts_the_rows_each_clause_removes():
    assert Filter("0 < pass_rate < 0.6 and attempts >= 4 and fresh").dry_run(TASKS) == [
        {"clause": "0 < pass_rate < 0.6", "removes": 3, "unknown": 1, "removes_alone": 2},
        {"clause": "attempts >= 4", "removes": 2, "unknown": 0, "removes_alone": 0},
        {"clause": "fresh", "removes": 2, "unknown": 0, "removes_alone": 1},
    ]
    assert Filter("").dry_run(TASKS) == []
    assert Filter("fresh or attempts > pass_rate").names == ["attempts", "fresh", "pass_rate"]


def test_an_empty_frame_has_nothing_to_keep():
    none = TASKS.iloc[:0]
    assert Filter("0 < pass_rate < 0.6 and not fresh").keep(none).empty
    assert Filter("attempts > 1").dry_run(none)[0]["removes"] == 0


VALUES = {"pass_rate": None, "attempts": None, "0": 0.0, "0.3": 0.3, "4": 4.0}
comparisons = st.tuples(
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.sampled_from([*VALUES]), st.sampled_from([*VALUES])
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    max_leaves=8,
)


def as_text(condition):
    kind, *parts = condition
    if kind == "not":
        return f"not ({as_text(parts[0])})"
    if kind in ("and", "or"):
        return f"({as_text(parts[0])}) {kind} ({as_text(parts[1])})"
    return f"{parts[0]} {kind} {parts[1]}"


def truth(condition, row):
    """True, False or None, by Kleene's tables."""
    kind, *parts = condition
    if kind in ("not", "and", "or"):
        truths = [truth(part, row) for part in parts]
        if kind == "not":
            return None if truths[0] is None else not truths[0]
        decides = kind == "or"
        return decides if decides in truths else None if None in truths else not decides
    left, right = (row.get(part, VALUES[part]) for part in parts)
    if math.isnan(left) or math.isnan(right):
        return None
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
    return compare[kind](left, right)


@given(conditions)
def test_missing_values_follow_kleenes_tables(condition):
    expected = [truth(condition, row) is True for row in TASKS.to_dict("records")]
    assert Filter(as_text(condition)).keep(TASKS).tolist() == expected


@given(st.text(max_size=80))
def test_any_text_is_a_filter_or_a_config_error(text):
    try:
        result = Filter(text).keep(TASKS)
    except ConfigError:
        return
    assert result.dtype == bool
