"""The forms of secrets that redaction looks for, from a published configuration of Betterleaks or Gitleaks.

    python data/make_redaction_rules.py betterleaks.toml LICENSE VERSION

Download both files of a release, run this and the tests, and commit `tracewheel/traces/redaction/rules.json`: patterns as data,
with the licence, the version and the SHA-256 of the file that they are from. Nothing is fetched when Tracewheel runs.

Left out are rules that report no secret (client ids), that guess (`generic-…`), and command lines, for which we have
detectors of our own. A pattern is changed in three ways: flags go where Python allows them; the end of a value is any character
that no key has, since logs quote keys within sentences; and words that the pattern cannot match are no signs of it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[1] / "tracewheel" / "traces" / "redaction" / "rules.json"
LEFT_OUT = re.compile(
    r"generic-.*|curl-.*|private-key|kubernetes-.*|jwt-base64|mongodb-connection-string|gcp-application-.*"
    r"|.*-id(?:\.\d)?|.*-name"
)
END = r"""(?:\\?['"\x60]|[\s;]|\\[nr]|$)"""
ENTROPY = re.compile(r'entropy\(finding\["secret"\]\) *<=? *([\d.]+)')
PREFIX = re.compile(r"(?:\(\?i\)|\\b|\(\?:\^\|[^)]*\)|\((?:\?:|\?i:)?)*((?:[A-Za-z0-9_:~!]|-|\\[.\-])+)(?![?*{|+])")
SHORTEST = 6
FORMLESS = ("facebook-access-token", "salesforce-access-token.1", "tableau-personal-access-token.1")  # told by the maker's name
ASSIGNED = r"(?:=|>|:{1,3}=|"  # the value of a name


def main() -> None:
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    source = Path(sys.argv[1]).read_bytes()
    rows = [row for rule in tomllib.loads(source.decode())["rules"] if (row := converted(rule))]
    provenance = {
        "from": f"Betterleaks {sys.argv[3]}, config/betterleaks.toml",
        "sha256": hashlib.sha256(source).hexdigest(),
        "licence": Path(sys.argv[2]).read_text(),
    }
    lines = ",\n".join(f"  {json.dumps(row)}" for row in sorted(rows, key=lambda row: row["kind"]))
    OUT.write_text(json.dumps(provenance, indent=1)[:-2] + f',\n "rules": [\n{lines}\n ]\n}}\n')
    print(f"{len(rows)} rules in {OUT}")


def converted(rule: dict[str, Any]) -> dict[str, Any] | None:
    """Kind, pattern, place of the value, signs and least entropy of a rule; None for one that is left out."""
    if "regex" not in rule or rule.get("skipReport") or LEFT_OUT.fullmatch(rule["id"]):
        return None
    pattern = pythonic(rule["regex"])
    compiled = re.compile(pattern)
    kind = re.sub(r"\.\d+$", "", rule["id"]).replace("-", "_")
    row: dict[str, Any] = {"kind": kind, "pattern": pattern, "group": rule.get("valueGroup", min(compiled.groups, 1))}
    row["named"] = ASSIGNED in pattern
    bare = re.sub(r"\\(.)", r"\1", pattern).lower()
    keywords = [word.lower() for word in rule["keywords"]]
    prefix = PREFIX.match(pattern)
    own = prefix[1].replace("\\", "").lower() if prefix else ""
    if row["named"]:
        words = keywords if any(word[:3] in bare for word in keywords) else []
    elif len(own) >= SHORTEST:
        words = [own]
    elif rule["id"] in FORMLESS:
        words = keywords
    else:
        words = keywords if all(len(word) >= SHORTEST - 1 and word in bare for word in keywords) else []
    row |= {"words": words} if words else {"words": [], "shape": shape(pattern)}
    entropy = ENTROPY.search(rule.get("filter", ""))
    return row | ({"entropy": float(entropy[1])} if entropy and row["named"] else {})


def pythonic(pattern: str) -> str:
    """A pattern of Go's syntax in Python's."""
    pattern = pattern.replace(END, r"(?![A-Za-z0-9])").replace(r"\z", r"\Z").replace("[[:alnum:]]", "[A-Za-z0-9]")
    pattern = pattern.replace("[:alnum:]", "A-Za-z0-9")
    while (place := pattern.find("(?i)", 1)) > 0:
        end = closing(pattern, place + 4)
        pattern = f"{pattern[:place]}(?i:{pattern[place + 4 : end]}){pattern[end:]}"
    return pattern


def closing(pattern: str, at: int) -> int:
    """Where the group that holds a place ends."""
    depth, in_class = 0, False
    while at < len(pattern):
        mark = pattern[at]
        if mark == "\\":
            at += 1
        elif in_class:
            in_class = mark != "]"
        elif mark == "[":
            in_class = True
        elif mark == "(":
            depth += 1
        elif mark == ")":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    return at


def shape(pattern: str) -> str:
    """A pattern that finds the same places, without what surrounds a value."""
    return re.sub(r"\(\?![^)]*\)|\\b|\(\?:\^\|(?:\[(?:[^\]\\]|\\.)*\])\)|\(\?:\$\|(?:\[(?:[^\]\\]|\\.)*\])\)", "", pattern)


if __name__ == "__main__":
    main()
