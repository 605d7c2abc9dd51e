"""How far the differences between two policies spread over tasks, in the evaluations of a real work folder.

python benchmarks/gate_spread.py runs

Pairs all evaluations of the same tasks, and groups the pairs by the size of their mean difference.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import pandas as pd

from tracewheel.evaluation.evaluate import RESULTS_FILE

BANDS = (0.0, 0.02, 0.05, 0.08, 0.12, 0.2, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work_dir", type=Path)
    tables = []
    for path in sorted(parser.parse_args().work_dir.glob(f"store/evaluate-*/{RESULTS_FILE}")):
        table = pd.read_parquet(path).set_index("task_id")
        sampled = table["sampled_successes"] / table["sampled_attempts"].where(table["sampled_attempts"] > 0)
        tables.append(pd.DataFrame({"greedy": table["greedy"], "both": (table["greedy"] + sampled) / 2}).dropna())
    rows = []
    for one, other in itertools.combinations(tables, 2):
        if set(one.index) == set(other.index):
            change = other - one
            rows.append({"tasks": len(one), "gain": abs(change["both"].mean()), **change.std().to_dict()})
    pairs = pd.DataFrame(rows)
    groups = pairs.groupby(["tasks", pd.cut(pairs["gain"], BANDS, include_lowest=True)], observed=True)
    print(groups[["both", "greedy"]].mean().assign(pairs=groups.size()).round(3).to_string())


if __name__ == "__main__":
    main()
