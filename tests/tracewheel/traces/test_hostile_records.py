"""Two hundred mutated records of logs of all formats: none runs, imports, reads or stops what it should not."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from tests.tracewheel.mutations import hostile_environment, mutated

ROOT = Path(__file__).parents[3]
LOGS = ROOT / "data/traces/workspace.jsonl"
SAMPLES = (ROOT / "plugins/logs/tests/samples",)
REAL = ROOT.parent / "shared/traces"
WORLDS = ("workspace", "order_desk", "refund_desk", "code", "harbor", "patch", "terminal", "recorded", *["mcp"] * 8)
VERIFIERS = (
    {"kind": "subprocess:Popen", "args": {"args": ["sh", "-c", "echo > pwned"]}},
    {"kind": "os:system", "args": {"command": "echo > pwned"}},
    {"kind": "turtle:Turtle", "args": {}},
)
RECORDS, SEED, MOST_SECONDS = 200, 43, 300  # for both runs and ten stages, on a busy machine; one hang alone is longer


def seeds():
    """One record or more of each format that is there."""
    found = [json.loads(line) for line in LOGS.read_bytes().splitlines()[1:780:100]]
    files = [file for folder in SAMPLES for file in sorted(folder.glob("*.json"))]
    files += sorted(REAL.rglob("*.json")) + sorted(REAL.rglob("*.traj")) if REAL.is_dir() else []
    for file in files:
        value = json.loads(file.read_text())
        first = value[0] if isinstance(value, list) and isinstance(value[0], dict) and "traj" in value[0] else value
        if len(json.dumps(first)) < 200_000:
            found.append(first)
    return found


def hostile_records():
    drawn, bases = random.Random(SEED), seeds()
    said = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": "Done."}]
    for number in range(RECORDS):
        if number % 4 == 0:
            kind = drawn.choice(
                ("workspace", "order_desk", "refund_desk", "code", "mcp", "harbor", "patch", "terminal", "recorded")
            )
            environment = hostile_environment(drawn, kind)
            if number < 4 * len(VERIFIERS):  # the known ways to a program, whatever is drawn
                environment = {"kind": "mcp", "prompt": "Do it.", "verifier": json.dumps(VERIFIERS[number // 4])}
            yield {"id": f"h{number}", "messages": said, "environment": environment}
        else:
            yield mutated(bases[number % len(bases)], drawn)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    log = folder / "hostile.jsonl"
    log.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in hostile_records()))
    (folder / "work").mkdir()
    command = [sys.executable, str(Path(__file__).with_name("hostile_run.py")), str(LOGS), str(log), str(folder / "work")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=MOST_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), folder


def test_no_record_imports_runs_connects_or_writes_outside(ran):
    result, folder = ran
    assert result["done"] == []
    assert not list(folder.rglob("pwned"))


def test_no_record_ends_the_batch(ran):
    result, folder = ran
    (_, kept, _, ends), (read, _, _, with_hostile) = result["clean"], result["hostile"]
    assert read >= RECORDS
    assert ends["workspace"] == with_hostile["workspace"] == "curated"
    traces = pandas.read_parquet(folder / "work/hostile/ingested/traces.parquet")
    assert traces["source_file"].str.endswith("workspace.jsonl").sum() == kept
