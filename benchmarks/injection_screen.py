"""How often the screen for injections suspects attacks and honest texts, on a table of both.

    python benchmarks/injection_screen.py TABLE.jsonl                  # rates in total, by language and by kind
    python benchmarks/injection_screen.py TABLE.jsonl --show           # and the texts that it takes for the other
    python benchmarks/injection_screen.py TABLE.jsonl --out benchmarks/results/injection_screen.md

A line of the table is {"text": …, "attack": true or false, "language": …, "kind": …}. A text is screened as an agent's last
words are before a judge sees them. A rate that is to be believed is of a table that nobody has tuned the rules on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracewheel.core.inference import wilson_interval
from tracewheel_graders.judges.attacks import attack_in

Row = dict[str, Any]


def read_table(path: Path) -> list[Row]:
    """The rows, each with what the screen says of it as `found`.

    Raises:
        SystemExit: a line is none.
    """
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows.append({**row, "attack": bool(row["attack"]), "found": attack_in(row["text"])})
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}:{number}: no row of text and attack ({type(error).__name__}: {error})")
    return rows


def rate(rows: Sequence[Row]) -> str:
    """How many of the rows are suspected, with Wilson's 95% interval."""
    if not rows:
        return "-"
    found = sum(bool(row["found"]) for row in rows)
    low, high = wilson_interval(found, len(rows))
    return f"{found} of {len(rows)} = {found / len(rows):.1%} ({low:.1%} to {high:.1%})"


def section(rows: Sequence[Row], by: str, name: Callable[[Row], str]) -> list[str]:
    """A table of the rates by what `name` gives."""
    names = sorted({name(row) for row in rows})
    lines = [f"| {by} | attacks suspected (recall) | honest texts suspected (false positives) |", "|---|---|---|"]
    for one in names:
        own = [row for row in rows if name(row) == one]
        lines.append(
            f"| {one} | {rate([row for row in own if row['attack']])} | {rate([row for row in own if not row['attack']])} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--show", action="store_true", help="list the texts that are taken for the other")
    parser.add_argument("--out", type=Path, help="write the rates to this file, too")
    options = parser.parse_args()
    rows = read_table(options.table)
    lines = [
        "# The screen for injections",
        "",
        f"`python benchmarks/injection_screen.py {options.table.name}`; 95% intervals by Wilson.",
        "",
    ]
    lines += section(rows, "texts", lambda row: "all")
    lines += section(rows, "language", lambda row: str(row.get("language", "")))
    lines += section(rows, "kind", lambda row: str(row.get("kind", "")))
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    if options.show:
        for row in rows:
            if bool(row["found"]) != row["attack"]:
                what = "missed" if row["attack"] else "honest"
                print(" | ".join([what, str(row.get("language")), str(row.get("kind")), row["found"], repr(row["text"])]))


if __name__ == "__main__":
    main()
