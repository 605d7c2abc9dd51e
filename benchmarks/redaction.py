"""Redaction both ways: secrets and personal data that are gone, and ordinary strings that changed.

    python benchmarks/redaction.py                        # the case tables in tests/, and strings of ../shared/traces
    python benchmarks/redaction.py --list                 # also the cases that went wrong

The tables are ours: templates written by hand, with random values. A value counts as gone if neither it nor its
longest word is left. `default` is the shipped profile; `all kinds` also looks for names and addresses. Prints JSON and tables.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from measuring import emit, machine, table

from tracewheel.config import RedactionConfig
from tracewheel.config.curation import PERSONAL_KINDS
from tracewheel.core.types import Trace
from tracewheel.traces.redaction.redactor import Redactor

CASES = Path(__file__).parents[1] / "tests" / "tracewheel" / "traces" / "redaction" / "cases"
TRACES = Path(__file__).parents[2] / "shared" / "traces"
LONGEST = 20_000  # characters of a string of the shared traces


class Case(NamedTuple):
    """A text with a value in it; `group` is its table."""

    group: str
    kind: str
    text: str
    value: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the cases that went wrong")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    planted = [Case(group, *case) for group in ("secrets", "personal") for case in planted_cases(group)]
    ordinary = {"ordinary": (CASES / "ordinary.txt").read_text().splitlines(), "shared traces": list(shared_strings())}
    shares, kinds, wrong = {}, {}, []
    for name, personal in {"default": RedactionConfig().personal, "all kinds": PERSONAL_KINDS}.items():
        redactor = Redactor(RedactionConfig(personal=personal))
        results = [(case, is_gone(case.value, redacted(redactor, case.text))) for case in planted]
        for case, gone in results:
            for key in ((case.group, "gone", name), (f"{case.group}: {case.kind}", "gone", name)):
                counts = (shares if key[0] == case.group else kinds).setdefault(key, [0, 0])
                counts[0] += gone
                counts[1] += 1
        wrong += [f"left ({name}) {case.group}: {case.kind}: {case.text!r}" for case, gone in results if not gone]
        for group, texts in ordinary.items():
            changed = [(text, after) for text in texts if (after := redacted(redactor, text)) != text]
            shares[group, "changed", name] = [len(changed), len(texts)]
            wrong += [f"changed ({name}) {group}: {before[:300]!r} -> {after[:300]!r}" for before, after in changed]
    result = {"machine": machine(1), "shares": rows(shares), "kinds": rows(kinds)}
    emit(result, tables(shares, kinds) + ("\n" + "\n".join(wrong) if arguments.list else ""), arguments.json)


def planted_cases(group: str) -> Iterator[tuple[str, str, str]]:
    """Kind, text and value of each case; secrets are stored in two parts, so that scanners of repositories stay quiet."""
    for line in (CASES / f"{group}.jsonl").read_text().splitlines():
        case = json.loads(line)
        value = "".join(case["value"])
        yield case["kind"], case["text"].replace("{}", value), value


def redacted(redactor: Redactor, text: str) -> str:
    """The text as it is stored: a user's message of a trace."""
    messages = [{"role": "user", "content": text}]
    nothing: dict[str, Any] = dict.fromkeys(("environment", "session", "user", "created", "model", "outcome"))
    trace = Trace(id="t", messages=messages, tools=[], source_file="log.jsonl", source_line=1, **nothing)
    return str(redactor.trace(trace)[0].messages[0]["content"])


def is_gone(value: str, text: str) -> bool:
    """Whether neither a value nor its longest word of six or more characters is in a text."""
    longest = max(re.findall(r"\w+", value), key=len, default=value)
    return value not in text and (len(longest) < 6 or longest not in text)


def shared_strings() -> Iterator[str]:
    """Each string of the shared traces once, but those with an e-mail address or a date of birth."""
    seen: set[str] = set()
    for file in sorted(TRACES.glob("*/*.json*")) + sorted(TRACES.glob("*/*.traj")):
        text = file.read_text()
        records = [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else [json.loads(text)]
        for string in _strings(records):
            if len(string) < LONGEST and string not in seen and not re.search(r"(?i)\w@\w|dob|birth", string):
                seen.add(string)
                yield string


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def rows(counts: dict[tuple[str, str, str], list[int]]) -> list[dict[str, Any]]:
    """The counts as records."""
    return [{"cases": key[0], "what": key[1], "profile": key[2], "count": n, "of": of} for key, (n, of) in counts.items()]


def tables(shares: dict[tuple[str, str, str], list[int]], kinds: dict[tuple[str, str, str], list[int]]) -> str:
    """Shares by table, and the kinds of which some are left."""
    return "\n".join(
        [
            table(["cases", "what", "profile", "count", "of", "%"], _lines(shares.items())),
            "\nKinds that are not all gone:\n",
            table(
                ["cases", "what", "profile", "count", "of", "%"], _lines((key, c) for key, c in kinds.items() if c[0] < c[1])
            ),
        ]
    )


def _lines(counts: Iterable[tuple[tuple[str, str, str], list[int]]]) -> list[list[Any]]:
    return [[*key, n, of, 100 * n / max(of, 1)] for key, (n, of) in counts]


if __name__ == "__main__":
    main()
