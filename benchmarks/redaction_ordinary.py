"""How many ordinary texts of developers redaction changes: sections of the documents of other people's repositories.

    python benchmarks/redaction_ordinary.py CHECKOUT... [--most 150]

Of each checkout (or file of JSON, whose strings count) some sections of `.md`, `.mdx` and `.rst` are drawn with a fixed seed.
Prints each change, and the share of changed texts; what is a person's address or a real key is for a reader to tell.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import re
from pathlib import Path

from redaction import _strings, redacted

from tracewheel.config import RedactionConfig
from tracewheel.traces.redaction.redactor import Redactor

DOCUMENTS = (".md", ".mdx", ".rst")
LISTS = re.compile(r"LICENSE|CHANGELOG|CHANGES|AUTHORS|CONTRIBUTORS", re.IGNORECASE)  # mostly of names
SHORTEST, LONGEST, FILES, SECTIONS = 120, 3000, 120, 8


def texts_of(place: Path, most: int) -> list[str]:
    """Texts of a checkout's documents, or of a file of JSON."""
    draw = random.Random(5)
    if place.is_file():
        lines = place.read_text().splitlines() if place.suffix == ".jsonl" else [place.read_text()]
        texts = [text for text in _strings([json.loads(line) for line in lines]) if SHORTEST < len(text) < 20_000]
    else:
        files = sorted(path for path in place.rglob("*") if path.suffix in DOCUMENTS and not LISTS.search(path.name))
        draw.shuffle(files)
        texts = []
        for file in files[:FILES]:
            sections = [part.strip() for part in re.split(r"\n(?=#+ )|\n\n\n+", file.read_text(errors="replace"))]
            texts += [part[:LONGEST] for part in sections if len(part) > SHORTEST][:SECTIONS]
    draw.shuffle(texts)
    return texts[:most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=150, help="texts of each place")
    options = parser.parse_args()
    redactor = Redactor(RedactionConfig())
    counts = [0, 0]
    for place in options.places:
        for text in texts_of(place, options.most):
            after = redacted(redactor, text)
            counts[0] += after != text
            counts[1] += 1
            before, words = text.split(" "), after.split(" ")
            for kind, start, end, begin, stop in difflib.SequenceMatcher(None, before, words, autojunk=False).get_opcodes():
                if kind != "equal":
                    print(
                        place.name,
                        repr(" ".join(before[max(0, start - 2) : end]))[-160:],
                        "->",
                        repr(" ".join(words[begin:stop]))[:90],
                    )
    print(f"{counts[0]} of {counts[1]} texts changed: {100 * counts[0] / max(1, counts[1]):.2f}%")


if __name__ == "__main__":
    main()
