"""A small language to select tasks: `0 < pass_rate < 0.6 and attempts >= 4`.

It has column names, numbers, quoted texts, True and False, `+ - * /`, comparisons (also chained), `in` with a list, `and`,
`or`, `not` and parentheses. Nothing in it runs code. A comparison with a missing value is neither true nor false (Kleene's
logic) and a task is kept where the whole is true, so an unscored task counts neither as failed nor as solved.
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import ConfigError

if TYPE_CHECKING:
    import pandas

DEEPEST = 40
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Filter:
    """A parsed filter.

    Args:
        text: The filter; empty keeps everything.

    Raises:
        ConfigError: the text is not in this language; the message shows the place.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree: ast.expr | None = None
        if not text.strip():
            return
        if "\n" in text or len(text) > 2000:
            raise ConfigError("a filter is one line of at most 2000 characters (curation.filter)")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._error(_offset(error, text.strip()), f"this is no filter: {getattr(error, 'msg', error)}") from error
        self._check(self._tree, truth=True, depth=1)

    @property
    def names(self) -> list[str]:
        """The columns it uses."""
        return sorted({node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}) if self._tree else []

    def keep(self, frame: pandas.DataFrame) -> pandas.Series[bool]:
        """The rows for which it is true.

        Raises:
            ConfigError: it names an unknown column, or compares values that cannot be compared.
        """
        import pandas

        if self._tree is None:
            return pandas.Series(True, index=frame.index)
        return self._truth(self._tree, frame).fillna(False).astype(bool)

    def dry_run(self, frame: pandas.DataFrame) -> list[dict[str, Any]]:
        """The rows that each clause (a part joined by `and`) would remove, in the order of the text.

        Returns:
            For each clause its text (`clause`) and the numbers of rows for which it is not true (`removes`), for which it is
            neither true nor false (`unknown`), and that no other clause removes (`removes_alone`).

        Raises:
            ConfigError: as `keep`.
        """
        clauses = _clauses(self._tree) if self._tree else []
        truths = [self._truth(clause, frame) for clause in clauses]
        removed = [~truth.fillna(False).astype(bool) for truth in truths]
        report = []
        for place, clause in enumerate(clauses):
            others = [own for index, own in enumerate(removed) if index != place]
            alone = removed[place].copy()
            for own in others:
                alone &= ~own
            counts = {"removes": removed[place], "unknown": truths[place].isna(), "removes_alone": alone}
            report.append({"clause": ast.unparse(clause), **{name: int(mask.sum()) for name, mask in counts.items()}})
        return report

    def _check(self, node: ast.expr, *, truth: bool, depth: int) -> None:
        """Check that a part is in the language, and is a condition where one is needed (`truth`)."""
        if depth > DEEPEST:
            raise self._error(node.col_offset, f"nested deeper than {DEEPEST}")
        match node:
            case ast.BoolOp(values=values) if truth:
                parts = values
            case ast.UnaryOp(op=ast.Not(), operand=operand) if truth:
                parts = [operand]
            case ast.Compare(left=left, ops=ops, comparators=comparators) if truth:
                for kind, compared in zip(ops, comparators, strict=True):
                    self._check_comparison(node, kind, compared)
                lists = [one for one in comparators if isinstance(one, ast.List | ast.Tuple)]
                values = [
                    left,
                    *(one for one in comparators if one not in lists),
                    *(part for one in lists for part in one.elts),
                ]
                for value in values:
                    self._check(value, truth=False, depth=depth + 1)
                return
            case ast.Name():
                return
            case ast.Constant(value=bool()):
                return
            case ast.Constant(value=int() | float() | str()) if not truth:
                return
            case ast.UnaryOp(op=ast.USub(), operand=operand) if not truth:
                parts = [operand]
            case ast.BinOp(left=left, op=op, right=right) if not truth and type(op) in _ARITHMETIC:
                parts = [left, right]
            case _:
                expected = "a comparison, as in `attempts >= 4`" if truth else "a column, a number or a text"
                raise self._error(node.col_offset, f"{ast.unparse(node)[:40]!r} has no place here: {expected} is expected")
        for part in parts:
            self._check(part, truth=truth, depth=depth + 1)

    def _check_comparison(self, node: ast.Compare, kind: ast.cmpop, compared: ast.expr) -> None:
        is_list = isinstance(compared, ast.List | ast.Tuple)
        if isinstance(kind, ast.In | ast.NotIn):
            if not is_list or len(node.ops) > 1:
                raise self._error(compared.col_offset, "behind 'in' stands a list, as in `family in ['list', 'prefix']`")
        elif type(kind) not in _COMPARISONS or is_list:
            raise self._error(node.col_offset, f"{ast.unparse(node)[:40]!r}: compare with < <= > >= == != or in")

    def _truth(self, node: ast.expr, frame: pandas.DataFrame) -> pandas.Series[Any]:
        """True, False or missing for each row."""
        import pandas

        match node:
            case ast.BoolOp(op=op, values=values):
                truths = [self._truth(value, frame) for value in values]
                result = truths[0]
                for truth in truths[1:]:
                    result = result & truth if isinstance(op, ast.And) else result | truth
                return result
            case ast.UnaryOp(operand=operand):
                return ~self._truth(operand, frame)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                result = pandas.Series(True, index=frame.index, dtype="boolean")
                for kind, compared in zip(ops, comparators, strict=True):
                    result &= self._comparison(left, kind, compared, frame)
                    left = compared
                return result
            case _:
                value = self._value(node, frame)
                if isinstance(value, bool):
                    return pandas.Series(value, index=frame.index, dtype="boolean")
                if not pandas.api.types.is_bool_dtype(value):
                    raise self._error(node.col_offset, f"the column {ast.unparse(node)} is neither true nor false: compare it")
                return value.astype("boolean")

    def _comparison(self, left: ast.expr, kind: ast.cmpop, right: ast.expr, frame: pandas.DataFrame) -> pandas.Series[Any]:
        import pandas

        first = self._value(left, frame)
        if isinstance(right, ast.List | ast.Tuple):
            choices = [self._value(part, frame) for part in right.elts]
            column = first if isinstance(first, pandas.Series) else pandas.Series(first, index=frame.index)
            found, missing = column.isin(choices), column.isna()
            found = ~found if isinstance(kind, ast.NotIn) else found
        else:
            second = self._value(right, frame)
            try:
                found = _COMPARISONS[type(kind)](first, second)
            except TypeError as error:
                raise self._error(
                    left.col_offset, f"{ast.unparse(left)} and {ast.unparse(right)} cannot be compared"
                ) from error
            missing = pandas.Series(pandas.isna(first), index=frame.index) | pandas.Series(
                pandas.isna(second), index=frame.index
            )
        return pandas.Series(found, index=frame.index).astype("boolean").mask(missing)

    def _value(self, node: ast.expr, frame: pandas.DataFrame) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name not in frame:
                    raise self._error(node.col_offset, f"there is no column {name!r}{_nearest(name, frame.columns)}")
                return frame[name]
            case ast.UnaryOp(operand=operand):
                return -self._number(operand, frame)
            case ast.BinOp(left=left, op=op, right=right):
                return _ARITHMETIC[type(op)](self._number(left, frame), self._number(right, frame))
        raise self._error(node.col_offset, "no value")

    def _number(self, node: ast.expr, frame: pandas.DataFrame) -> Any:
        import pandas

        value = self._value(node, frame)
        number = (
            pandas.api.types.is_numeric_dtype(value) if isinstance(value, pandas.Series) else isinstance(value, int | float)
        )
        if not number or isinstance(value, bool):
            raise self._error(node.col_offset, f"{ast.unparse(node)} is no number to reckon with")
        return value * 1.0  # so that a division by 0 is missing or infinite, and no error

    def _error(self, place: int, why: str) -> ConfigError:
        text = self.text.strip()
        place = len(text.encode()[:place].decode(errors="ignore"))  # ast counts bytes
        return ConfigError(f"curation.filter: {why}\n  {text}\n  {' ' * min(place, len(text))}^")


def _offset(error: Exception, text: str) -> int:
    """The place of a syntax error in bytes, as in parsed nodes; Python counts characters from 1, and gives 0 for the end."""
    offset = getattr(error, "offset", None)
    if offset is None:
        return 0
    return len((text[: offset - 1] if offset else text).encode())


def _clauses(tree: ast.expr) -> list[ast.expr]:
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [clause for value in tree.values for clause in _clauses(value)]
    return [tree]


def _nearest(name: str, columns: Collection[Any]) -> str:
    names = sorted(map(str, columns))
    near = difflib.get_close_matches(name, names, n=1)
    return f": do you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"
