"""Small runs written by hand: a record, a store with a curation and two evaluations, and the ledger of gates."""

import json

import pandas as pd
import pytest
import yaml

from tracewheel.core.store import Store

SETTINGS = {
    "name": "by-hand",
    "seed": 0,
    "environment": {"kind": "workspace"},
    "rubric": {"verifiers": [{"kind": "task", "weight": 1.0}]},
    "evaluation": {"samples": 2, "temperature": 1.0, "top_p": 1.0},
    "gate": {"greedy_weight": 0.5},
}
SAID = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "tidy up"}]


def write_episodes(out, greedy, words):
    """The greedy episodes of an evaluation, whose last message depends on `words`."""
    (out / "greedy").mkdir()
    rows = [
        {
            "id": f"{words}-{task}",
            "task_id": task,
            "messages": json.dumps([*SAID, {"role": "assistant", "content": f"{words if task.endswith('1') else 'done'}"}]),
            "final_state": json.dumps({"files": {"/a": words if task.endswith("1") else "x"}}),
            "stop_reason": "finished",
            "detail": "",
        }
        for task in greedy
    ]
    pd.DataFrame(rows).to_parquet(out / "greedy" / "trajectories.parquet")
    scores = [{"trajectory_id": row["id"], "task_id": row["task_id"], "detail": "the verifier's words"} for row in rows]
    pd.DataFrame(scores).to_parquet(out / "greedy" / "scores.parquet")


@pytest.fixture
def write_run(tmp_path):
    """Writes a run: greedy success by task (`family` is the part of the id before "-"), splits by task, settings to change."""

    def write(run_id, rl, base, *, splits=None, settings=None, words="so"):
        work, record = tmp_path / f"work-{run_id}", tmp_path / f"work-{run_id}" / run_id
        record.mkdir(parents=True)
        store = Store(work / "store")
        names = []

        def add(stage, key, produce):
            entry = store.make(stage, key, produce)
            names.append(entry.path.name)
            return entry

        def curate(out):
            where = splits or dict.fromkeys(rl, "held_out")
            rows = [{"id": t, "split": s, "family": t.partition("-")[0], "prompt": f"do {t}"} for t, s in where.items()]
            pd.DataFrame(rows).to_parquet(out / "tasks.parquet")
            return {}

        def evaluation(greedy, said):
            def produce(out):
                table = pd.DataFrame({"task_id": list(greedy), "tier": 1, "greedy": list(greedy.values())})
                table["family"] = table["task_id"].str.partition("-")[0]
                table["sampled_successes"], table["sampled_attempts"] = 2 * table["greedy"], 2
                table.to_parquet(out / "results.parquet")
                write_episodes(out, greedy, said)
                return {}

            return produce

        add("curate", "1" * 16, curate)
        theirs = add("evaluate", "2" * 16, evaluation(base, "base"))
        ours = add("evaluate", "3" * 16, evaluation(rl, words))
        add("gate", "4" * 16, lambda out: None)
        profile = {**SETTINGS, **(settings or {})}
        (record / "config.yaml").write_text(yaml.safe_dump(profile))
        lineage = {
            "started": "2026-11-23T12:00:00+00:00",
            "git": {"commit": "c" * 40, "changed": False},
            "inputs": {"base": "b"},
            "evaluations": {
                name: {"held_out": {"entry": entry.path.name}} for name, entry in (("warm_start", theirs), ("rl", ours))
            },
        }
        (record / "lineage.json").write_text(json.dumps(lineage))
        (record / "entries.txt").write_text("".join(f"{name}\n" for name in names))
        (record / "gate.json").write_text(json.dumps({"verdict": "refused", "baseline": "warm_start"}))
        mean = {name: sum(values.values()) / len(values) for name, values in (("warm_start", base), ("rl", rl))}
        summary = {"name": "by-hand", "success": mean, "seconds": {"evaluate": 2.0}, "tokens": {"evaluate": 100}}
        (record / "summary.json").write_text(json.dumps(summary))
        return record

    return write
