"""Whose fault a failed call is: the contract between a policy and an environment of a user's own (docs/your-environment.md).

Environments that Tracewheel ships answer mistakes themselves, in the words that their tasks were logged with; of anyone else's
class `hold` wraps `reset` and `step`. So a rollout, a replay, a probe and an audit get the same answers.
"""

from __future__ import annotations

import functools
import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from tracewheel.core.errors import ConfigError, TracewheelError
from tracewheel.core.own_code import file_of, place
from tracewheel.core.tracebacks import ADDRESS, PACKAGE, fault_of
from tracewheel.core.types import Task
from tracewheel.environments.base import EXCEPTIONS, Environment, Observation, Refusal, ToolError

NAMED, SAID = 64, 300  # characters of a tool's name, and of what is wrong, in an answer
# What tools raise at a call that cannot be done. Not where a connection or a deadline is to blame: no policy causes that.
EXPECTED, UNREACHABLE = (OSError, KeyError, ValueError), (ConnectionError, TimeoutError)


def hold(environment: Environment, label: str) -> None:
    """Answer a call in the environment's place where no tool takes it, or where its exception is the tool's answer.

    Raises:
        ConfigError: the class's `exceptions` is neither "observation" nor "failure".
    """
    wanted = getattr(environment, "exceptions", None)
    if wanted not in (None, *EXCEPTIONS):
        raise ConfigError(f"{label}: its `exceptions` is {wanted!r}: one of {', '.join(EXCEPTIONS)}, or left out")
    if not all(callable(getattr(environment, name, None)) for name in ("tools", "reset", "step")):
        return  # `check` says what is missing
    reset, step = environment.reset, environment.step
    shown: dict[str, Any] = {}

    @functools.wraps(reset)
    def begin(task: Task) -> None:
        shown.clear()
        reset(task)

    @functools.wraps(step)
    def call(tool: str, args: dict[str, Any]) -> Observation:
        # As the episode began, and as they are now: an environment may offer more tools later.
        if tool not in shown:
            shown.update(_parameters(environment.tools()))
        if tool not in shown:
            return Refusal(f"error: no tool named {tool[:NAMED]}", error=True, why="of a tool that is not offered")
        if problem := _problem(shown[tool], args):
            return Refusal(_answer(f"{tool}: {problem}"), error=True, why="against the tool's schema")
        try:
            return step(tool, args)
        except Exception as error:
            unknown = [name for name in args if name not in shown[tool].get("properties", args)]
            if not _is_answer(error, wanted, step, beside_schema=bool(unknown)):
                raise
            said = f"{tool}: no argument named {unknown[0]}" if unknown else _said(error)
            why = f"answered with {type(error).__name__}{f' ({where})' if (where := place(error)) else ''}"
            return Refusal(_answer(said), error=True, why=why)

    with suppress(AttributeError):  # a class with slots
        environment.reset, environment.step = begin, call  # type: ignore[method-assign]


def _parameters(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"


def _answer(text: str) -> str:
    """An error's text, the same on any machine."""
    text = ADDRESS.sub("0x…", text).encode("utf-8", "replace").decode()
    return f"error: {text if len(text) <= SAID else f'{text[:SAID]}…'}"


def _problem(schema: dict[str, Any], args: dict[str, Any]) -> str:
    """What of a call's arguments is against a schema, or "". Null for an optional argument is the argument left out."""
    import referencing.exceptions

    given = {name: value for name, value in args.items() if value is not None or name in schema.get("required", ())}
    try:
        error = next(_validator(json.dumps(schema)).iter_errors(given), None)
    except referencing.exceptions.Unresolvable:  # a part of the schema lies elsewhere: nothing is fetched
        return ""
    if error is None:
        return ""
    at = error.json_path.removeprefix("$").removeprefix(".")
    return f"{at}: {error.message}" if at else str(error.message)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    import jsonschema
    import referencing

    wanted = json.loads(schema)
    return jsonschema.validators.validator_for(wanted)(wanted, registry=referencing.Registry())


def _is_answer(error: Exception, wanted: str | None, step: Callable[..., Any], *, beside_schema: bool) -> bool:
    """Whether what `step` raised is the tool's answer, and not a failure of the episode.

    Args:
        error: The exception.
        wanted: The class's `exceptions`.
        step: The method that raised it.
        beside_schema: Whether the call has arguments that the tool's schema does not name.
    """
    if isinstance(error, ToolError):
        return True
    if isinstance(error, TracewheelError) or fault_of(error) != "environment":
        return False
    if any(isinstance(one, UNREACHABLE) for one in _chain(error)):
        return False
    if beside_schema or wanted is not None:
        return beside_schema or wanted == "observation"
    return isinstance(error, EXPECTED) and _is_authors(error, step)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that led to it: clients raise their own for a lost connection."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_authors(error: Exception, step: Callable[..., Any]) -> bool:
    """Whether the author's own code raised it, or what that calls, and not Tracewheel's."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = file_of(step)
    if own is None or own not in files:
        return False
    last = len(files) - files[::-1].index(own)
    return not any(file.startswith(f"{PACKAGE}/") for file in (own, *files[last:]))
