"""Two houses with a few of the demo's logs each, in which a text is planted that must never travel."""

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PLANTED = "PLANTED-heron-4711"
FEW = ["curation.train_tasks=4", "curation.validation_tasks=3", "curation.held_out_tasks=4", "curation.harder_tasks=0"]
SHORT = ["threads=1", "warm_start.epochs=1", "warm_start.batch_size=4", "warm_start.warmup_steps=0", "warm_start.lora.rank=4"]


def records(first, count):
    """Some of the demo's records, the text planted in what the agent says and in who asked."""
    found = []
    for line in (ROOT / "data/traces/workspace.jsonl").read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("messages"):
            record["user"] = f"{PLANTED}-{record.get('user')}"
            spoken = next((one for one in record["messages"] if isinstance(one, dict) and one.get("role") == "assistant"), None)
            if spoken:
                spoken["content"] = PLANTED
            found.append(record)
    return found[first : first + count]


@pytest.fixture
def make_client(tmp_path, base):
    """Writes a client's file, with a profile and logs of its own; returns its path."""

    def make(name, first=0, count=60, overrides=(), **values):
        logs = tmp_path / f"{name}.jsonl"
        logs.write_text("".join(json.dumps(record) + "\n" for record in records(first, count)))
        where = [
            f"ingest.paths=[{logs}]",
            f"policy.base={base}",
            f"warm_start.replay={{path: {base}/replay.parquet, share: 0}}",
        ]
        settings = {
            "name": name,
            "profile": str(ROOT / "configs/tiny.yaml"),
            "overrides": [*FEW, *SHORT, *where, *overrides],
            "out": str(tmp_path / name),
            "keys": str(tmp_path / "keys" / "clients" / name),
            **values,
        }
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(settings))
        return file

    return make
