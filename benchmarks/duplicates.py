"""Speed and memory of redaction and of the search for duplicates, on synthetic traces.

    python benchmarks/duplicates.py --traces 10000 --out docs/duplicates.json

Each size is measured in a process of its own, so that its peak memory is its own. Traces are generated one by one and
never held together: 5% are copies of an earlier one with other numbers, and a share of the second run holds an e-mail address
and a card number each. `--libraries` compares the MinHash libraries on the same sets.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine

BATCH = 2000
COPIES, SENSITIVE = 0.05, 0.1
VERBS = ("cancel", "change", "confirm", "explain", "refund", "move", "upgrade", "print", "send", "check")
THINGS = [
    f"{first}{second}"
    for first in ("ticket", "order", "parcel", "invoice", "seat", "room")
    for second in ("", "s", "-list", "-copy")
]


def synthetic(count: int, sensitive: float = 0.0) -> Iterator[dict[str, Any]]:
    """Traces as ingest writes them: a request of some sixty words, three calls, replies; about 2 KB each."""
    words = [f"{random.Random(n).choice(THINGS)}{n}" for n in range(20000)]
    rng, earlier = random.Random(0), ""
    for number in range(count):
        if not earlier or rng.random() >= COPIES:
            earlier = " ".join(rng.choices(words, k=40) + rng.choices(VERBS, k=20))
        request = f"Please {earlier} for order {rng.randrange(10**6)}"
        if rng.random() < sensitive:
            request += f", write to person{number}@company.com, card 4111 1111 1111 1111"
        messages: list[dict[str, Any]] = [{"role": "user", "content": request}]
        for step in range(3):
            arguments = json.dumps({"query": " ".join(rng.choices(words, k=3)), "limit": rng.randrange(100)})
            call = {
                "id": f"call_{number}_{step}",
                "type": "function",
                "function": {"name": f"tool_{step}", "arguments": arguments},
            }
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            reply = json.dumps({"rows": [{"name": word, "count": rng.randrange(1000)} for word in rng.choices(words, k=12)]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "name": f"tool_{step}", "content": reply})
        messages.append({"role": "assistant", "content": "Done: " + " ".join(rng.choices(words, k=30))})
        yield {"id": f"trace-{number}", "messages": messages, "environment": None}


def measure(count: int) -> dict[str, Any]:
    """One size, in this process."""
    import pandas

    from tracewheel.config import DuplicatesConfig, RedactionConfig
    from tracewheel.core.types import Trace
    from tracewheel.curation.duplicates import DuplicateFinder, describe_duplicates
    from tracewheel.traces.redaction.redactor import Redactor

    result: dict[str, Any] = {"traces": count}
    redactor = Redactor(RedactionConfig())
    for name, share in (("clean", 0.0), ("sensitive", SENSITIVE)):
        spent, size, places = 0.0, 0, 0
        for row in synthetic(min(count, 20000), share):
            trace = Trace(
                row["id"], row["messages"], [], None, None, None, None, None, outcome=None, source_file="log", source_line=1
            )
            size += len(json.dumps(row["messages"]))
            start = time.perf_counter()
            places += sum(redactor.trace(trace)[1].values())
            spent += time.perf_counter() - start
        result[f"redaction_{name}_mb_s"] = round(size / spent / 1e6, 1)
        result[f"redaction_{name}_places"] = places
    finder, spent = DuplicateFinder(DuplicatesConfig()), 0.0
    rows: list[dict[str, Any]] = []
    for row in synthetic(count):
        rows.append({**row, "messages": json.dumps(row["messages"])})
        if len(rows) == BATCH:
            batch, rows = pandas.DataFrame(rows), []
            start = time.perf_counter()
            finder.add(batch)
            spent += time.perf_counter() - start
    finder.add(pandas.DataFrame(rows, columns=["id", "messages", "environment"]))
    start = time.perf_counter()
    clusters = finder.clusters()
    result["clustering_s"] = round(time.perf_counter() - start, 2)
    result["duplicates_traces_s"] = round(count / (spent + result["clustering_s"]))
    result["near"] = describe_duplicates(clusters)["near"]
    result["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return result


def libraries(count: int = 2000) -> dict[str, float]:
    """Sets per second of the installed MinHash libraries: 128 permutations, sets of 100 words."""
    import importlib.util

    rng = random.Random(0)
    sets = [[f"word{rng.randrange(5000)}" for _ in range(100)] for _ in range(count)]
    found = {}
    if importlib.util.find_spec("rensa"):
        from rensa import RMinHash

        start = time.perf_counter()
        RMinHash.digest_matrix_from_token_sets(sets, 128, 1).to_rows()
        found["rensa"] = round(count / (time.perf_counter() - start))
    if importlib.util.find_spec("datasketch"):
        from datasketch import MinHash

        start = time.perf_counter()
        MinHash.bulk([[word.encode() for word in words] for words in sets], num_perm=128)
        found["datasketch"] = round(count / (time.perf_counter() - start))
    return found


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = [
        "| traces | redaction, clean MB/s | redaction, one in ten MB/s | duplicates, traces/s | of it clustering s | peak MB |",
        "|---|---|---|---|---|---|",
    ]
    for one in result["sizes"]:
        columns = (
            "traces",
            "redaction_clean_mb_s",
            "redaction_sensitive_mb_s",
            "duplicates_traces_s",
            "clustering_s",
            "peak_mb",
        )
        lines.append("| " + " | ".join(str(one[column]) for column in columns) + " |")
    lines += ["", *(f"{name}: {speed} sets/s" for name, speed in result.get("libraries", {}).items())]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=[10_000])
    parser.add_argument("--libraries", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one)))
        return
    sizes = []
    for count in options.traces:
        command = [sys.executable, __file__, "--one", str(count)]
        done = subprocess.run(command, env=environment(1), capture_output=True, text=True, check=True)
        sizes.append(json.loads(done.stdout))
    result: dict[str, Any] = {"machine": machine(1), "sizes": sizes}
    if options.libraries:
        result["libraries"] = libraries()
    emit(result, table(result), options.out)


if __name__ == "__main__":
    main()
