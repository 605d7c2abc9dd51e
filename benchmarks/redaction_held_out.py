"""Redaction on the test cases of others: Presidio, trufflehog, detect-secrets and gitleaks, read from checkouts of theirs.

    python benchmarks/redaction_held_out.py FOLDER     # with FOLDER/presidio, trufflehog, detect-secrets and gitleaks

A value counts as found if it is not in the redacted text (Presidio, trufflehog), or if the text changed (the other two). Of
texts in which those projects find nothing, it counts how many changed; some of them hold a secret in the wrong place for
their rule. Kinds of Presidio's that we have none of are left out. Prints a table.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import table

from tracewheel.config import RedactionConfig
from tracewheel.config.curation import PERSONAL_KINDS
from tracewheel.traces.redaction.redactor import Redactor

REDACTOR = Redactor(RedactionConfig(personal=PERSONAL_KINDS))
OURS = re.compile(
    r"test_(?:email|phone|credit_card|iban|ip|mac|us_(?:ssn|itin|passport|driver|bank)|uk_(?:nino|nhs|passport|driving)|es_(?:nie|nif|passport)"
    r"|it_(?:fiscal|passport)|pl_pesel|in_(?:aadhaar|pan|passport)|fi_personal|ca_sin|au_(?:tfn|medicare)|kr_(?:rrn|passport)|se_personnummer|th_tnin"
    r"|de_(?:tax_id|passport|id_card)|tr_national|za_id|sg_fin)\w*_recognizer\.py"
)
GO_STRING = r"`[^`]*`|\"(?:[^\"\\\n]|\\.)*\""


def redacted(text: str) -> str:
    """The text after redaction with all kinds."""
    return REDACTOR.record_bytes(text.encode("utf-8", "surrogatepass"))[0].decode("utf-8", "surrogatepass")


def presidio(folder: Path) -> Iterator[tuple[bool, bool]]:
    """Whether each value should be found, and whether it is gone (or, of texts with none, whether they changed)."""
    for file in sorted((folder / "presidio-analyzer/tests").glob("test_*.py")):
        for case in parametrized(file) if OURS.fullmatch(file.name) else ():
            if len(case) < 3 or not isinstance(case[0], str) or not isinstance(case[1], int):
                continue
            text, after = case[0], redacted(case[0])
            places = (case[2],) if case[2] and isinstance(case[2][0], int) else case[2]
            spans = [place for place in places if isinstance(place, tuple) and len(place) == 2 and isinstance(place[0], int)]
            yield from ((True, text[start:end] not in after) for start, end in spans)
            if case[1] == 0:
                yield False, after != text


def trufflehog(folder: Path) -> Iterator[tuple[bool, bool]]:
    """Each literal value of eight characters or more that a detector's test expects."""
    entry = re.compile(rf"input:\s*({GO_STRING}),\s*want:\s*\[\]string\{{([^}}]*)\}}")
    for file in sorted((folder / "pkg/detectors").rglob("*_test.go")):
        for written, wanted in entry.findall(file.read_text()) if "integration" not in file.name else ():
            text = go(written)
            values = [value for value in map(go, re.findall(GO_STRING, wanted)) if len(value) >= 8 and value in text]
            yield from ((True, value not in redacted(text)) for value in values)


def detect_secrets(folder: Path) -> Iterator[tuple[bool, bool]]:
    """The cases of its detectors of one form each; entropy and public addresses are left out."""
    for file in sorted((folder / "tests/plugins").glob("*_test.py")):
        for case in parametrized(file) if not re.search("base|entropy|ip_public", file.name) else ():
            if len(case) > 1 and isinstance(case[0], str) and isinstance(case[1], bool):
                yield case[1], redacted(case[0]) != case[0]


def gitleaks(folder: Path) -> Iterator[tuple[bool, bool]]:
    """The literal examples of its rules."""
    lists = re.compile(r"(tps|fps)\s*:?=\s*\[\]string\{(.*?)\n\t\}", re.DOTALL)
    for file in sorted((folder / "cmd/generate/config/rules").glob("*.go")):
        for name, body in lists.findall(file.read_text()):
            for text in map(go, re.findall(rf"^\s*({GO_STRING}),", body, re.MULTILINE)):
                yield name == "tps", redacted(text) != text


def parametrized(file: Path) -> Iterator[tuple[Any, ...]]:
    """The literal cases of pytest.mark.parametrize in a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize" and len(node.args) > 1:
            for case in getattr(node.args[1], "elts", []):
                try:
                    value = ast.literal_eval(case)
                except ValueError:
                    continue
                if isinstance(value, tuple):
                    yield value


def go(written: str) -> str:
    """The value of a string in Go."""
    return written[1:-1] if written[0] == "`" else str(json.loads(written.replace("\\'", "'"), strict=False))


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    rows = []
    for name, read in (
        ("presidio", presidio),
        ("trufflehog", trufflehog),
        ("detect-secrets", detect_secrets),
        ("gitleaks", gitleaks),
    ):
        results = list(read(Path(sys.argv[1]) / name))
        found = [gone for wanted, gone in results if wanted]
        changed = [gone for wanted, gone in results if not wanted]
        rows.append([name, sum(found), len(found), sum(changed), len(changed)])
    print(table(["cases of", "found", "of", "changed without", "of"], rows))


if __name__ == "__main__":
    main()
