"""Recorded requests of others' tests, read by the gateway: what is accepted, what is left out, what is refused and why.

    git clone https://github.com/pydantic/pydantic-ai ../pydantic-ai
    PYTHONPATH=benchmarks python plugins/dialects/benchmarks/recorded_requests.py ../pydantic-ai

`--show "state at the vendor"` adds a line for each of an outcome.

Reads the cassettes of VCR (YAML with `interactions`) below a folder. Equal bodies of a dialect count once.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from measuring import emit, table

from tracewheel import Dialect, Refusal, Said
from tracewheel.gateway.dialects.chat import ChatCompletions
from tracewheel_dialects.anthropic import AnthropicMessages
from tracewheel_dialects.gemini import Gemini
from tracewheel_dialects.responses import Responses

DIALECTS: dict[str, tuple[str, Dialect]] = {
    "Chat Completions": (r"https://api\.openai\.com/v1/chat/completions", ChatCompletions()),
    "Responses": (r"https://api\.openai\.com/v1/responses", Responses()),
    "Messages": (r"https://api\.anthropic\.com/v1/messages(\?beta=true)?", AnthropicMessages()),
    "Gemini": (r"https://[^/]*googleapis\.com/.*:(g|streamG)enerateContent(\?.*)?", Gemini("gemini")),
}
# Why a refusal is right, by its field and message; what nothing here fits is to be judged.
FORM = "answer held to a form"
JUDGED = {
    FORM: r"\S*(response_format|text\.format|output_config\.format|output_format|responseMimeType|response\w*Schema):",
    "state at the vendor": r"(previous_response_id|conversation|background|cachedContent):|.*('compaction'|redacted thinking)",
    "history of the vendor's tools": r"(input|messages\.content)\.type:.*_(call|use|list_tools)'|contents\.parts\.(toolC|exec)",
    "another service: images, moderation": r"(moderation|generationConfig\.(imageConfig|responseModalities)):",
    "wrong, also at the vendor, or only its own tools": r"(temperature|tool_choice):",
}


ACCEPTED, LEFT_OUT, OPEN = "accepted", "accepted, something left out", "refused, to be judged"
OUTCOMES = (ACCEPTED, LEFT_OUT, *JUDGED, OPEN)


class Recorded(NamedTuple):
    """A request: where it stands, and its body."""

    place: str
    dialect: str
    body: Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a checkout")
    parser.add_argument("--show", choices=OUTCOMES, metavar="OUTCOME", help="a line for each of an outcome")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {name: Counter() for name in DIALECTS}
    told: Counter[str] = Counter()
    for request in different(options.folder):
        outcome, about = outcome_of(request)
        counts[request.dialect][outcome] += 1
        told.update(about)
        if outcome == options.show:
            print(f"{request.dialect}\t{request.place}\t{' '.join(about)}", file=sys.stderr)
    emit({"counts": counts, "told": dict(told.most_common())}, tables(counts, told), options.json)


def different(folder: Path) -> Iterator[Recorded]:
    """The requests below a folder, equal ones once."""
    seen: set[str] = set()
    for path in sorted(folder.rglob("*.yaml")):
        if "cassettes" not in path.parts:
            continue
        for request in requests_in(path, folder):
            key = request.dialect + json.dumps(request.body, sort_keys=True, default=str)
            if key not in seen:
                seen.add(key)
                yield request


def requests_in(path: Path, folder: Path) -> Iterator[Recorded]:
    """The requests of a cassette that go to one of the vendors."""
    cassette = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for number, interaction in enumerate((cassette or {}).get("interactions") or ()):
        request = interaction.get("request") or {"uri": "", "method": ""}  # of a web socket there is none
        name = next((name for name, (url, _) in DIALECTS.items() if re.fullmatch(url, request["uri"])), None)
        if name is None or request["method"] != "POST":
            continue
        body = request.get("parsed_body")
        if body is None and isinstance(request.get("body"), str):
            body = json.loads(request["body"])
        if body is not None:
            yield Recorded(f"{path.relative_to(folder)}#{number}", name, body)


def outcome_of(request: Recorded) -> tuple[str, list[str]]:
    """What the gateway does with a request, and what of it that is about."""
    try:
        asked = DIALECTS[request.dialect][1].read(json.loads(json.dumps(request.body, default=str)), Said())
    except Refusal as refusal:
        said = f"{refusal.field}: {refusal.message}"
        return next((kind for kind, words in JUDGED.items() if re.match(words, said)), OPEN), [f"refused {said[:120]}"]
    dropped = [f"left out {name}" for name in sorted(asked.request.dropped)]
    return (LEFT_OUT if dropped else ACCEPTED), dropped


def tables(counts: dict[str, Counter[str]], told: Counter[str]) -> str:
    """The outcomes by dialect, and what was left out and refused."""
    rows = [[one, *(str(found[one]) for found in counts.values())] for one in OUTCOMES]
    rows.append(["all", *(str(sum(found.values())) for found in counts.values())])
    return (
        table(["", *counts], rows) + "\n\n" + table(["", "requests"], [[one, str(count)] for one, count in told.most_common()])
    )


if __name__ == "__main__":
    main()
