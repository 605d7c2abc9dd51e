"""The code of a world: the modules of an environment, of the kinds in its arguments, and of the verifiers of its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tracewheel.core.fingerprint import own_modules
from tracewheel.core.kind_table import inner_kinds
from tracewheel.core.kinds import parse_kind
from tracewheel.environments import ENVIRONMENTS, declared_verifiers
from tracewheel.environments.users import USERS
from tracewheel.scoring.verifiers import VERIFIERS


class Code(NamedTuple):
    """Modules of Tracewheel and its wheels, and of the user's own classes (`core.fingerprint.code_parts`)."""

    modules: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


def world_code(environment: str, verifiers: Iterable[str] = ()) -> Code:
    """The code of an environment, of what its arguments name, and of the verifiers that its tasks may name.

    An environment that declares no `verifiers` may make tasks with any of them.

    Args:
        environment: Its kind's text.
        verifiers: Further verifiers that its tasks may name.
    """
    declared = declared_verifiers(environment)
    return kinds_code(environment, *(VERIFIERS if declared is None else declared), *verifiers)


def kinds_code(*texts: str) -> Code:
    """The code of kinds of environments, users and verifiers, and of kinds in their arguments. A name counts in each table."""
    names = {parse_kind(each).kind.partition(":")[0] for text in texts for each in (text, *inner_kinds(text))}
    places = [table.place(name) for table in (ENVIRONMENTS, USERS, VERIFIERS) for name in names if name in table]
    return Code(tuple(sorted({place.partition(":")[0] for place in places})), own_modules(texts))
