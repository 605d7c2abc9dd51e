"""The verifiers of this wheel against a case table, on stored episodes, and before hostile answers."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.tracewheel.scoring.test_hostile_answers import DEEP, LONG, SMALL, check_hostile, json_list
from tests.tracewheel.scoring.verifiers.test_general import check_case
from tests.tracewheel.test_kind_examples import run_doctest
from tracewheel.core.errors import ConfigError
from tracewheel.core.kinds import kind_text
from tracewheel.scoring.verifiers import VERIFIERS, make_verifier

TABLE = json.loads(Path(__file__).with_name("verifier_cases.json").read_text())
CASES = [(kind, case) for kind, cases in TABLE.items() for case in cases]
TABLES = {"t": [{"a": 1}]}
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000)"
TEXT = "replace(hex(zeroblob(49000)), '00', 'aa')"


def doubled(levels):
    parts = ["a0 AS (SELECT 1 AS x)", *(f"a{n} AS (SELECT p.x FROM a{n - 1} p, a{n - 1} q)" for n in range(1, levels))]
    return f"WITH {', '.join(parts)} SELECT count(*) FROM a{levels - 1}"


def slow(*row):
    return pytest.param(*row, marks=pytest.mark.slow)


SQL = {"query": "SELECT 7", "database": TABLES}
TEXTS = [
    ("json_equal", {}, {"answer": [1]}, DEEP),
    ("json_equal", {}, {"answer": [1]}, "9" * 100_000),
    ("json_equal", {}, {"answer": [1]}, json.dumps(SMALL * 20_000)),
    ("json_equal", {"unordered": True}, {"answer": json_list(3000)}, json.dumps(json_list(3000, 1))),
    slow("json_equal", {"unordered": True, "tolerance": 9e3}, {"answer": [*json_list(2999), 1]}, json.dumps(json_list(3000))),
    ("json_equal", {"unordered": True, "tolerance": 0.1}, {"answer": list(range(3000))}, json.dumps([0] * 3000)),
    ("sql_result", {}, SQL, f"{NUMBERS} SELECT {TEXT} FROM n LIMIT 9000"),
    slow("sql_result", {}, SQL, f"{NUMBERS} SELECT {TEXT} || i FROM n ORDER BY 1"),
    slow("sql_result", {}, SQL, f"{NUMBERS} SELECT sum(instr({TEXT}, i)) FROM n"),
    ("sql_result", {}, SQL, f"SELECT {TEXT} LIKE '%' || {TEXT} || 'b'"),
    ("sql_result", {}, SQL, doubled(18)),
    ("sql_result", {}, SQL, f"{NUMBERS} SELECT i * 0 + 2305843009213693951 FROM n LIMIT 9999"),
    ("sql_result", {}, SQL, "(" * 19_000),
    ("length", {"target": 10, "limit": 20, "unit": "characters"}, {}, LONG),
    ("process_checks", {}, {"checks": [{"kind": "state", "name": "a", "path": "/answer", "equals": "A"}]}, LONG),


]  # fmt: skip


@pytest.mark.parametrize(("kind", "case"), CASES, ids=[f"{kind}: {case['name']}" for kind, case in CASES])
def test_case_table(kind, case):
    check_case(kind, case)


@pytest.mark.parametrize("kind", TABLE)
def test_the_example_in_the_docstring_runs(kind):
    run_doctest(VERIFIERS[kind])


@pytest.mark.parametrize(("kind", "args", "goal", "said"), TEXTS, ids=lambda value: str(value)[:20])
def test_a_hostile_answer_is_0(kind, args, goal, said):
    check_hostile(kind, args, goal, said)


@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        ("length", {"target": 5, "limit": 5}, "must be above target"),
        ("budget", {"turns": None}, "set a budget"),
        ("process_checks", {"checks": [{"kind": "called", "name": "a"}]}, "tool"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(kind, args, said):
    with pytest.raises((ConfigError, ValueError), match=said):
        make_verifier(kind_text(kind, args))


def test_a_query_cannot_write_even_past_the_authorizer():
    """The connection itself only reads; a script's second statement is never run."""
    from tracewheel_graders.verifiers.sql_result import SqlResultArgs, SqlResultVerifier

    verifier = SqlResultVerifier(SqlResultArgs())
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a)")
    verifier._confine(connection)
    for query in ("INSERT INTO t VALUES (1)", "CREATE TABLE u (a)", "ATTACH ':memory:' AS x", "PRAGMA query_only = OFF"):
        with pytest.raises(sqlite3.DatabaseError):
            connection.execute(query)
    connection.set_authorizer(None)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("INSERT INTO t VALUES (1)")
