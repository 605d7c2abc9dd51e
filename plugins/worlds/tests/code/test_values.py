"""Values as JSON: nothing is lost, nothing of another type is taken, and comparison is strict."""

from collections import Counter, OrderedDict, deque
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.strict_json import check_json
from tracewheel_worlds.code.driver import DEEPEST, Unfit, decode
from tracewheel_worlds.code.grading import VIEWS, _function_failure, run_tests
from tracewheel_worlds.code.values import decode_claim, encode, same
from tracewheel_worlds.sandbox import BoxFile, BoxRun, Limits

NAN, INFINITY = float("nan"), float("inf")
VALUES = [
    None, True, 0, -7, 2**53, -(10**4000), 0.0, -0.0, 0.1, 5e-324, 1.7e308, NAN, INFINITY, -INFINITY, 1 + 2j, "", "é\ud800",
    b"\x00\xff", [], [[1], 2.0], (), (1, (2,)), {1, 2}, frozenset({"a"}), deque([1]), {},
    {1: "a", "1": True, (1, 2): None}, {"int": "0x1"},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back_as_they_were(value):
    packed = encode(value)
    if value != "é\ud800":
        check_json(packed)
    for found in (decode(packed), decode_claim(packed)):
        assert type(found) is type(value) and repr(found) == repr(value) and same(value, found)


def test_kinds_of_dict_are_dicts():
    assert decode_claim(encode(Counter("aab"))) == {"a": 2, "b": 1} and type(decode_claim(encode(OrderedDict(a=1)))) is dict


class Everything:
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


class Text(str):
    __slots__ = ()


class Number(int):
    pass


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        Everything(),
        [Everything()],
        Text("a"),
        Number(1),
        {Number(1): 1},
        Decimal(1),
        range(2),
        iter([]),
        lambda: 1,
        nested(DEEPEST + 1),
    ],
    ids=range(10),  # some show their address
)
def test_other_types_are_not_taken(value):
    with pytest.raises(Unfit):
        encode(value)


@pytest.mark.parametrize(
    "claim",
    [
        1.5, {"float": "1.5"}, {"float": 1}, {"int": "12"}, {"int": "0x" + "f" * 300_000}, {"object": []}, {},
        {"int": "0x1", "float": "nan"},
        {"dict": [[1, 2], [1, 3]]}, {"dict": [[[1], 2]]}, {"dict": [1]}, {"set": [[1]]}, {"complex": [1, 2]}, {"bytes": "é"},
        {"tuple": {"a": 1}}, nested(DEEPEST + 1),
    ],
    ids=lambda claim: str(claim)[:30],
)  # fmt: skip
def test_claims_of_another_form_are_refused(claim):
    with pytest.raises((ValueError, TypeError)):
        decode_claim(claim)


@pytest.mark.parametrize(
    ("one", "other", "strict", "equal"),
    [
        (1, True, False, True),
        (1, 1.0, False, True),
        (0.0, -0.0, True, True),
        (NAN, NAN, True, True),
        (NAN, 0.0, False, False),
        ([1], (1,), False, False),
        ([1, 2], [2, 1], False, False),
        ({1: "a"}, {True: "a"}, False, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, True),
        ({"a": 1}, {"a": 1, "b": 2}, False, False),
        ({1, 2}, {1.0, 2}, False, True),
        ({1}, frozenset({1}), False, True),
        ("1", 1, False, False),
        (None, False, False, False),
        ("a", b"a", False, False),
        ([1, [2, {"a": 1.0}]], [1, [2, {"a": 1}]], False, True),
        (10**400, 1.5, False, False),
    ],
)
def test_comparison_by_type(one, other, strict, equal):
    assert same(one, other) is same(other, one) is strict
    assert same(one, other, strict=False) is equal


class Lying:
    """A sandbox whose agent wrote the lines itself."""

    def __init__(self, line):
        self.line = line

    def run(self, *given, **named):
        return BoxRun(0, b'{"ready": true}\n' + self.line + b"\n", b"")


@pytest.mark.parametrize("name", ["raised", "unfit", "missing", "exit"])
@pytest.mark.parametrize("inner", [b"[" * 900 + b"]" * 900, b'"\\ud800"', b"{}", b"1.5", b"[]"])
def test_a_claim_of_another_form_is_forged(name, inner):
    sandbox = Lying(b'{"case": 0, "%s": %s}' % (name.encode(), inner))
    goal = {"form": "function", "file": "a.py", "function": "f", "types": "equal", "cases": [{"args": [], "expected": 1}]}
    result = run_tests(sandbox, Limits(), {**goal, "shown": 0}, {"a.py": BoxFile(b"x")})
    assert result.passed == (False,) and "forged results" in result.signs
    assert result.failure.encode()


LARGE = complex(1.7e308, 1.7e308)


@pytest.mark.parametrize("other", [0, 1.5, 10**400, complex(-1.7e308, 1.7e308), True, complex(NAN, 0)])
@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_a_difference_too_large_for_a_float_is_another_result(other, tolerance):
    for strict in (True, False):
        assert not same(other, LARGE, strict=strict, tolerance=tolerance)
        assert not same([LARGE], [other], strict=strict, tolerance=tolerance)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary()
    | st.sampled_from([10**400, -(10**400), LARGE, -LARGE, 1.7e308, 2**1024]),
    lambda part: st.lists(part, max_size=4) | st.lists(part, max_size=4).map(tuple)
    | st.dictionaries(st.integers() | st.text() | st.complex_numbers(), part, max_size=4),
    max_leaves=12,
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(
        st.sampled_from(["int", "float", "complex", "bytes", "dict", "tuple", "set", "frozenset", "deque"]), part, max_size=1
    ),
    max_leaves=10,
)  # fmt: skip


@given(expected=PLAIN, claim=PLAIN.map(encode) | JSON, strict=st.booleans(), view=st.sampled_from(sorted(VIEWS)))
def test_no_claim_of_an_agent_makes_the_grading_raise(expected, claim, strict, view):
    goal = {"types": "strict" if strict else "equal"}
    for tolerance in (0.0, 1e-6):
        case = {"args": [], "expected": encode(expected), "view": view, "tolerance": tolerance}
        assert isinstance(_function_failure(goal, case, {"case": 0, "value": claim}), str)


def test_tolerance_is_for_floats_in_any_place():
    assert same([1.0, {"a": 2.0}], [1.0 + 1e-7, {"a": 2.0 - 1e-7}], tolerance=1e-6)
    assert (
        not same(1.0, 1.1, tolerance=1e-6)
        and not same(1.0, NAN, tolerance=1.0)
        and not same(10**400, 1.5, strict=False, tolerance=1.0)
    )
