"""What an agent's code says of given inputs, asked in a box of its own and read without trust."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from tracewheel import InfrastructureError, stored_json, untimed
from tracewheel_worlds.sandbox import BoxFile, Limits, Sandbox

Form = Literal["function", "program"]
MOST_OUTPUT = 8 << 20
SECONDS_OF_PROGRAM = 4.0
# Exceptions that an honest function does not raise.
ODD_EXCEPTIONS = ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "MemoryError", "SkipTest", "Skipped")


@dataclass(frozen=True)
class Claims:
    """What came of the cases.

    Attributes:
        cases: One claim for each case, None where there is none. A function's has `value`, `raised`, `unfit` or `missing`;
            a program's has `exit`, `stdout` and `outputs`.
        broken: Why none of them counts; "" where they do.
        signs: What an honest run does not do.
    """

    cases: tuple[dict[str, Any] | None, ...]
    broken: str = ""
    signs: tuple[str, ...] = ()


@cache
def driver() -> str:
    """The program that runs beside an agent's code."""
    return Path(__file__).with_name("driver.py").read_text(encoding="utf-8")


def ask(
    sandbox: Sandbox,
    limits: Limits,
    files: Mapping[str, BoxFile],
    form: Form,
    file: str,
    function: str,
    inputs: Sequence[Mapping[str, Any]],
) -> Claims:
    """Run an agent's function or program on inputs, in a fresh box with its files and the inputs alone.

    Args:
        sandbox: Where it runs.
        limits: What all cases together may use.
        files: The agent's final files.
        form: Whether `file` has a function to call, or is a program to start.
        file: The agent's file, by its path in the box.
        function: The function's name; "" for a program.
        inputs: The cases without their expected values: `args` and `kwargs` as encoded values for a function; `args`, `stdin`,
            `files` (texts by path) and the paths of its `outputs` for a program.

    Raises:
        InfrastructureError: the box did not come as far as the agent's code.
    """
    work = {"form": form, "file": file, "function": function, "cases": list(inputs), "seconds": SECONDS_OF_PROGRAM}
    with untimed():  # the box has a limit of its own
        run = sandbox.run(
            ["python3", "-I", "-B", "-c", driver()],
            files,
            stored_json(work).encode(),
            limits.model_copy(update={"output_bytes": MOST_OUTPUT}),
            env={"PYTHONHASHSEED": "0"},
        )
    lines = run.stdout.split(b"\n")
    if lines[0] != b'{"ready": true}':
        raise InfrastructureError(f"the box of the tests did not start ({run.exit_code}): {run.text[:200]}")
    signs = [f"{finding} in the tests" for finding in run.findings]
    return _read(lines[1:], len(inputs), signs)


def _read(lines: Sequence[bytes], count: int, signs: list[str]) -> Claims:
    """The claims of the lines after the first, of anyone's making."""
    cases: list[dict[str, Any] | None] = [None] * count
    for place, line in enumerate(lines[:-1]):  # what follows the last line end was cut off
        try:
            claim = json.loads(line, object_pairs_hook=unique_keys, parse_constant=_refuse, parse_float=_refuse)
        except (ValueError, RecursionError):
            claim = None
        if claim == {"end": count} and place == count:
            continue
        if not _well_formed(claim, place) or place >= count:
            return Claims(tuple(cases), "the results were tampered with", (*signs, "forged results"))
        cases[place] = claim
        if claim.get("raised") in ODD_EXCEPTIONS:
            signs.append(f"raised {claim['raised']}")
        if "unfit" in claim:
            signs.append(f"returned {str(claim['unfit'])[:80]}")
    if cases and cases[-1] is None:
        signs.append("ended early")
    return Claims(tuple(cases), "", tuple(dict.fromkeys(signs)))


def _well_formed(claim: Any, place: int) -> bool:
    """Whether a claim is one that the driver writes: its text is shown later, so it must be text that can be stored."""
    if not isinstance(claim, dict) or type(claim.get("case")) is not int or claim["case"] != place:
        return False
    texts = [claim[name] for name in ("raised", "unfit", "missing") if name in claim]
    return type(claim.get("exit")) in (int, NoneType) and all(isinstance(text, str) and text.isprintable() for text in texts)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, from its pairs.

    Raises:
        ValueError: a key occurs twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _refuse(text: str) -> Any:
    raise ValueError(f"no such number: {text}")
