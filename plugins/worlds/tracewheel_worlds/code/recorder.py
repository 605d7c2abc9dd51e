"""Runs in a box with a benchmark's tests and known solution, and no agent's code: takes asserts apart into inputs and results.

The test's asserts become calls that record what the function under test is given and what it should return. What cannot be
taken apart is refused with a reason: a call of the function outside an assert, a comparison other than equality, an argument
that is no plain value.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import os
import random
import sys

from tracewheel_worlds.code.driver import Unfit, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

VIEWS = ("sorted", "set", "list", "tuple", "len", "int")
MOST_CASES = 250


class Refused(Exception):
    """A test that cannot be taken apart; its text says why."""


class TakeApart(ast.NodeTransformer):
    """Turns each assert about `name` into calls of `record_`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def about(self, node: ast.AST) -> bool:
        return any(isinstance(part, ast.Name) and part.id == self.name for part in ast.walk(node))

    def visit_Assert(self, node: ast.Assert) -> Any:
        if not self.about(node.test):
            return ast.Pass()
        return [ast.copy_location(ast.Expr(value=call), node) for call in self.calls(node.test)]

    def calls(self, test: ast.expr) -> list[ast.expr]:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return [call for part in test.values for call in self.calls(part)]
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return [self.record(test.operand, ast.Constant(False), "truth")]
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return [self.comparison(test)]
        close = isinstance(test, ast.Call) and ast.unparse(test.func) in ("math.isclose", "isclose")
        if isinstance(test, ast.Call) and close and len(test.args) == 2:
            one, other = test.args if self.about(test.args[0]) else reversed(test.args)
            limits = {keyword.arg or "": keyword.value for keyword in test.keywords}
            relative = limits.pop("rel_tol", ast.Constant(1e-9))
            absolute = limits.pop("abs_tol", ast.Constant(0.0))
            if limits:
                raise Refused("isclose with other arguments")
            return [self.record(one, other, "", relative=relative, absolute=absolute)]
        return [self.record(test, ast.Constant(True), "truth")]

    def comparison(self, test: ast.Compare) -> ast.expr:
        left, right, kind = test.left, test.comparators[0], type(test.ops[0])
        if kind in (ast.Eq, ast.Is):
            one, other = (left, right) if self.about(left) else (right, left)
            if self.about(other):
                raise Refused("both sides of an assert call the function")
            return self.record(one, other, "")
        if kind in (ast.Lt, ast.LtE) and isinstance(left, ast.Call) and ast.unparse(left.func) in ("abs", "math.fabs"):
            inner = left.args[0]
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub) and not self.about(right):
                one, other = (inner.left, inner.right) if self.about(inner.left) else (inner.right, inner.left)
                return self.record(one, other, "", absolute=right)
        raise Refused(f"an assert with {kind.__name__}")

    def record(
        self, term: ast.expr, expected: ast.expr, view: str, relative: ast.expr | None = None, absolute: ast.expr | None = None
    ) -> ast.expr:
        """A call of `record_` with what the function is given and what is expected of its result."""
        while isinstance(term, ast.Call) and isinstance(term.func, ast.Name) and term.func.id in VIEWS and not view:
            if len(term.args) != 1 or term.keywords:
                raise Refused(f"{term.func.id} with more arguments")
            view, term = term.func.id, term.args[0]
        if not (isinstance(term, ast.Call) and isinstance(term.func, ast.Name) and term.func.id == self.name):
            raise Refused(f"an assert on {ast.unparse(term)[:60]}")
        given = [*term.args, *(keyword.value for keyword in term.keywords)]
        if any(map(self.about, given)) or self.about(expected) or any(keyword.arg is None for keyword in term.keywords):
            raise Refused("the function is called within its own arguments or what is expected")
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        named = ast.Dict([ast.Constant(keyword.arg) for keyword in term.keywords], [part.value for part in term.keywords])
        return ast.Call(
            ast.Name("record_", ast.Load()),
            [
                ast.Constant(view),
                ast.Tuple(term.args, ast.Load()),
                named,
                ast.Lambda(nothing, expected),
                relative or ast.Constant(0.0),
                absolute or ast.Constant(0.0),
            ],
            [],
        )


def taken_apart(source: str, name: str) -> ast.Module:
    """A test's source with recording in place of its asserts.

    Raises:
        Refused: an assert has another form, or the function is used outside of asserts.
    """
    tree = ast.parse(source)
    TakeApart(name).visit(tree)
    if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree)):
        raise Refused("the function is used outside of an assert")
    return ast.fix_missing_locations(tree)


def recorder(function: Callable[..., Any], cases: list[dict[str, Any]]) -> Callable[..., None]:
    """What the recording calls."""

    def record(view: str, args: Any, named: Any, expect: Any, relative: float, absolute: float) -> None:
        if len(cases) == MOST_CASES:
            return
        case: dict[str, Any] = {"args": [encode(value) for value in args]}
        if named:
            case["kwargs"] = {name: encode(value) for name, value in named.items()}
        found = function(*args, **named)
        expected = expect()
        shown = bool(found) if view == "truth" else (getattr(builtins, view)(found) if view else found)
        tolerance = absolute
        if relative or absolute:
            tolerance = max(relative * abs(expected), absolute)
            right = abs(shown - expected) <= tolerance
        else:
            right = shown == expected
        if not right:
            raise Refused("the known solution fails the test")
        case["expected"] = encode(expected)
        if view:
            case["view"] = view
        if tolerance:
            case["tolerance"] = float(tolerance)
        cases.append(case)

    return record


def main() -> None:
    work = json.load(io.TextIOWrapper(sys.stdin.buffer, "utf-8"))
    cases: list[dict[str, Any]] = []
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    random.seed(0)
    problem = ""
    try:
        tree = taken_apart(work["test"], work["called"])
        names: dict[str, Any] = {"__name__": "solution"}
        exec(compile(work["solution"], "solution", "exec"), names)
        names["record_"] = recorder(names[work["entry"]], cases)
        exec(compile(tree, "test", "exec"), names)
        if work["check"]:
            names["check"](names[work["entry"]])
        problem = "" if cases else "no assert calls the function"
    except Unfit as error:
        problem = f"a value of type {error}"
    except Refused as error:
        problem = str(error)
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"[:200]
    channel.write(json.dumps({"problem": problem, "cases": [] if problem else cases}))
    channel.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
