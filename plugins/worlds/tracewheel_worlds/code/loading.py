"""Tasks of files in the forms of HumanEval and MBPP.

Their tests are asserts in Python, which would have to run beside an agent's code. So each test is taken apart, in a box with
the known solution and without an agent's code, into inputs and expected results, and graded as any other task. A test that
cannot be taken apart is refused.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import logging
import zlib
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from tracewheel import DataError, InfrastructureError, Task, parse_json, parse_python, read_file, stored_json
from tracewheel_worlds.code.claims import MOST_OUTPUT, driver
from tracewheel_worlds.code.goals import check_goal
from tracewheel_worlds.code.tasks import code_task
from tracewheel_worlds.sandbox import Limits, Sandbox, SandboxConfig, make_sandbox

FILE = "solution.py"
HUMAN_EVAL = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
MBPP = ("task_id", "code", "test_list")
AT_ONCE = 4
LIMITS = Limits(seconds=30.0, output_bytes=MOST_OUTPUT)
MOST_UNPACKED = 1 << 30
PROGRAM = "import os, sys; sys.path.insert(0, os.getcwd()); from tracewheel_worlds.code.recorder import main; main()"
HIDDEN_FROM_CHECK = "candidate"


@dataclass(frozen=True)
class Loaded:
    """The tasks of a file in its order, and why others were refused, by their name in the file."""

    tasks: list[Task]
    refused: dict[str, str]


class _Refused(Exception):
    """A record that makes no task; its text says why."""


def tasks_from_file(path: Path, sandbox: SandboxConfig | None = None, verifier: str = "unit_tests") -> Loaded:
    """The tasks of a file: JSONL, perhaps gzipped, or a JSON list, of records of HumanEval or MBPP.

    Args:
        path: The file.
        sandbox: Where the tests are taken apart.
        verifier: The verifier of the tasks.

    Raises:
        DataError: it is no such file, or all its tasks are refused; the message says why.
        ConfigError, InfrastructureError: there is no sandbox, or it failed.
    """
    records = _records(path)
    make = partial(_task, make_sandbox(sandbox), verifier)
    tasks, refused = [], {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for record, found in zip(records, pool.map(make, records), strict=True):
            if isinstance(found, Task):
                tasks.append(found)
            else:
                refused[str(record["task_id"])] = found
    if refused:
        reasons = "; ".join(f"{count} {reason}" for reason, count in Counter(refused.values()).most_common(5))
        if not tasks:
            raise DataError(f"{path}: none of its {len(records)} tests can be taken apart: {reasons}")
        logging.getLogger(__name__).warning("%s: %d of %d tasks refused: %s", path, len(refused), len(records), reasons)
    return Loaded(tasks, refused)


def _records(path: Path) -> list[dict[str, Any]]:
    packed = read_file(path)
    try:
        text = (_unpacked(packed) if packed[:2] == b"\x1f\x8b" else packed).decode()
        records = (
            parse_json(text) if text.lstrip().startswith("[") else [parse_json(line) for line in text.splitlines() if line]
        )
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{path}: neither JSONL nor a JSON list: {error}") from None
    if not records:
        raise DataError(f"{path}: no records")
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or not any(all(name in record for name in names) for names in (HUMAN_EVAL, MBPP)):
            raise DataError(
                f"{path}: record {number} has neither {', '.join(HUMAN_EVAL)} (HumanEval) nor {', '.join(MBPP)} (MBPP)"
            )
    return records


def _unpacked(packed: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        content = file.read(MOST_UNPACKED + 1)
    if len(content) > MOST_UNPACKED:
        raise ValueError(f"it holds more than {MOST_UNPACKED >> 20} MB")
    return content


def _task(sandbox: Sandbox, verifier: str, record: Mapping[str, Any]) -> Task | str:
    """The task of a record, or why there is none."""
    try:
        made = _human_eval if "canonical_solution" in record else _mbpp
        return made(sandbox, verifier, record)
    except _Refused as reason:
        return str(reason)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError, MemoryError) as error:
        return f"a broken record: {type(error).__name__}: {str(error)[:100]}"


def _human_eval(sandbox: Sandbox, verifier: str, record: Mapping[str, Any]) -> Task:
    entry, stub = record["entry_point"], record["prompt"]
    solution = stub + record["canonical_solution"]
    cases = _cases(sandbox, solution, record["test"], entry, HIDDEN_FROM_CHECK)
    prompt = f"Complete the function `{entry}` in `{FILE}`, which begins so:\n\n{stub}"
    return _made("humaneval", prompt, {FILE: stub}, entry, solution, cases, 0, verifier)


def _mbpp(sandbox: Sandbox, verifier: str, record: Mapping[str, Any]) -> Task:
    setup = "\n".join([*record.get("test_imports", []), record.get("test_setup_code") or ""]).strip()
    solution = record["code"].replace("\r\n", "\n")
    tests = [test.replace("\r\n", "\n").strip() for test in record["test_list"]]
    entry = _entry(solution, tests)
    cases = _cases(sandbox, f"{setup}\n{solution}", "\n".join(tests), entry, entry)
    text = record.get("text") or record.get("prompt") or ""
    prompt = f"{text}\nWrite it to `{FILE}`. It is to pass tests like this one:\n\n{tests[0]}"
    return _made("mbpp", prompt, {}, entry, solution, cases, 1, verifier)


def _made(
    family: str,
    prompt: str,
    files: dict[str, str],
    entry: str,
    solution: str,
    cases: list[dict[str, Any]],
    shown: int,
    verifier: str,
) -> Task:
    goal = {
        "family": family,
        "tier": 1,
        "form": "function",
        "file": FILE,
        "function": entry,
        "types": "equal",
        "cases": cases,
        "shown": shown,
        "solution": solution,
    }
    try:
        check_goal(goal)
    except DataError as error:
        raise _Refused(str(error)) from None
    return code_task(prompt, {"files": files}, goal, verifier)


def _entry(solution: str, tests: list[str]) -> str:
    """The function that all tests call and the solution defines."""
    try:
        defined = [node.name for node in parse_python(solution).body if isinstance(node, ast.FunctionDef)]
        trees = [parse_python(test) for test in tests]
    except SyntaxError as error:
        raise _Refused(f"no Python: {error.msg}") from None
    called = [{node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} for tree in trees]
    names = [name for name in defined if all(name in found for found in called)]
    if len(set(names)) != 1:
        raise _Refused(f"{'no' if not names else 'more than one'} function of the solution is in all tests")
    return names[0]


def _cases(sandbox: Sandbox, solution: str, test: str, entry: str, called: str) -> list[dict[str, Any]]:
    """A test's inputs and expected results, taken apart in a box without an agent's code."""
    work = {"solution": solution, "test": test, "entry": entry, "called": called, "check": called == HIDDEN_FROM_CHECK}
    run = sandbox.run(["python3", "-I", "-c", PROGRAM], _program_files(), stored_json(work).encode(), LIMITS)
    if run.findings:
        raise _Refused(f"the known solution: {', '.join(run.findings)}")
    try:
        found = json.loads(run.stdout)
        problem, cases = found["problem"], found["cases"]
    except (ValueError, KeyError, TypeError):
        raise InfrastructureError(f"the box of a test said nothing ({run.exit_code}): {run.text[:200]}") from None
    if problem:
        raise _Refused(problem)
    return list(cases)


@cache
def _program_files() -> dict[str, bytes]:
    folder = "tracewheel_worlds/code"
    recorder = Path(__file__).with_name("recorder.py").read_bytes()
    return {f"{folder}/driver.py": driver().encode(), f"{folder}/recorder.py": recorder}
