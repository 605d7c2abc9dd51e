"""Every road to a better agent on one profile, at equal sampled tokens, each judged by the gate against the warm start.

    python plugins/search/benchmarks/roads.py --seeds 0 1 2

All roads of a seed start from its verified warm start, play training tasks (prompts also choose on validation tasks), and end
after the round in which they have sampled `--tokens`. All counts: proposed tasks, prompts that were tried, their validation.
The last policy counts, without a choice on validation. Rates, groups and tasks a round are the demo's; no road has its own, but
for GRPO's KL and DPO's minibatches. `hindsight` is rejection sampling that learns from the tasks that failures did solve, too.
`GRPO with replay` adds as many earlier groups as there are fresh ones, at most 4 updates old, and makes twice as many steps an
update. `GRPO, steps doubled` makes as many without them, on half the rows a step. `tool bonus` and `epsilon-tool` begin
at 0.2 and end at 0, in round 8.
`self-play, random proposals` is self-play without its challenger. The reflection model is a table of edits over HTTP. Needs
the wheels prompts and selfplay. `--lost` plays tasks that the warm start loses, those of `benchmarks/lost_tasks.py`. With it,
or with another `--profile` than the tiny workspace's, name an `--out` of its own.

Writes `results/roads.json` with the outcome of each held-out task, and `results/roads.md`. Finished cells are not played again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.extend([str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "benchmarks")])
from roads_table import page
from seed_roads import PROFILE, ROADS, START, Roads

from tracewheel import content_hash

RESULTS = Path(__file__).parent / "results"


def known_cells(path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """The file of cells, to add to; one that was played with other settings is refused."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"asked": asked, "cells": {}}
    if known["asked"] != asked:
        raise SystemExit(f"{path}: was played with {known['asked']}, and now {asked} is asked for: name another --out")
    return known


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--roads", nargs="+", choices=ROADS, default=list(ROADS))
    parser.add_argument("--tokens", type=int, default=60_000, help="that each road may sample")
    parser.add_argument("--profile", default=PROFILE)
    parser.add_argument("--lost", action="store_true", help="play tasks that the warm start loses")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="a.b=c", help="for all roads")
    parser.add_argument("--challenger-set", action="append", default=[], metavar="a.b=c", help="for self-play's challenger")
    parser.add_argument("--work", type=Path, default=Path("runs/roads"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    path = options.out / "roads.json"
    asked = {"tokens": options.tokens, "settings": options.settings, "challenger": options.challenger_set}
    asked |= {"profile": options.profile} if options.profile != PROFILE else {}
    asked |= {"lost": True} if options.lost else {}
    work = options.work / content_hash(asked, length=8)
    known = known_cells(path, asked)
    for seed in options.seeds:
        done: dict[str, Any] = known["cells"].setdefault(str(seed), {})
        missing = [road for road in (START, *options.roads) if road not in done]
        given = (seed, options.tokens, options.settings, options.challenger_set, work, options.profile)
        roads = Roads(*given, lost=options.lost) if missing else None
        if roads and not (roads.work / "warm-start" / "held_out").is_dir():
            missing = [START, *(road for road in missing if road != START)]  # the gate needs its evaluation
        for road in missing:
            assert roads is not None
            done[road] = roads.cell(road)
            options.out.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(known) + "\n")
            verdict = done[road].get("gate", {}).get("verdict", "")
            print(f"seed {seed}, {road}: {done[road]['tokens']:,} tokens {verdict}", file=sys.stderr, flush=True)
    text = page(known, START)
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
