"""Four leaks planted into the shipped logs: curation prevents each, and training refuses each forged one."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pandas
import pytest

from data.workspace_logs import log_record
from flows.cli import main
from tracewheel.config import IngestConfig, RetrainConfig
from tracewheel.core.errors import LeakError
from tracewheel.core.types import Task
from tracewheel.curation.curate import curate
from tracewheel.curation.leaks import check_curated
from tracewheel.environments.workspace.tasks import PROMPTS, workspace_task
from tracewheel.traces.ingest import ingest
from tracewheel_projects import log_line

ROOT = Path(__file__).parents[3]
LOGS = ROOT / "data/traces/workspace.jsonl"
CONFIG = RetrainConfig(name="test", environment={"kind": "workspace"})
CAUGHT_AS = {"user": "user", "whitespace": "fingerprint", "paraphrase": "fingerprint", "renumbered": "renumbered duplicate"}


def other_numbers(value):
    """The same with ones and nines exchanged."""
    return json.loads(json.dumps(value).translate(str.maketrans("19", "91")))


def copy_of(task, how):
    """A task that is another one in disguise."""
    wording = next(text for text in PROMPTS[task.family] if text.split()[0] != task.prompt.split()[0])
    goal = task.goal
    other = wording.format(
        value=goal["selector"]["value"], source=goal["source"], destination=goal["destination"], manifest=goal["manifest"]
    )
    if how == "renumbered":
        return workspace_task(task.prompt, other_numbers(task.initial_state), other_numbers(goal))
    prompt = {"whitespace": task.prompt.replace(" ", "  "), "paraphrase": other, "user": task.prompt}[how]
    return workspace_task(prompt, task.initial_state, goal)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    out = tmp_path_factory.mktemp("clean")
    ingest(IngestConfig(paths=(str(LOGS),)), out / "ingested")
    curate(CONFIG, out / "ingested", out / "curated")
    return out / "curated"


@pytest.fixture(scope="module")
def planted(clean, tmp_path_factory):
    """Curated logs with copies of a training task by a user of their own, and a held-out task tried by a training user.

    Also: the copies by how they were made, and the trace of each.
    """
    folder = tmp_path_factory.mktemp("planted")
    tasks, episodes = pandas.read_parquet(clean / "tasks.parquet"), pandas.read_parquet(clean / "episodes.parquet")
    train = tasks[(tasks["split"] == "train") & (tasks["family"] == "pattern") & (tasks["initial_state"].str.contains("1"))]
    original = Task.from_record(train.iloc[0].to_dict())
    copies = {how: copy_of(original, how) for how in ("whitespace", "paraphrase", "renumbered")}
    held_out = episodes[episodes["split"] == "held_out"].iloc[0]
    copies["user"] = Task.from_record(tasks[tasks["id"] == held_out["task_id"]].iloc[0].to_dict())
    users = dict.fromkeys(copies, "user-of-the-copies") | {"user": episodes.loc[episodes["split"] == "train", "user"].iloc[0]}
    traces = {}
    with (folder / "log.jsonl").open("wb") as log:
        log.write(LOGS.read_bytes())
        for how, task in copies.items():
            record = log_record(task, users[how], f"session {how}", datetime(2026, 11, 1, tzinfo=UTC), random.Random(1))
            traces[how] = record["id"] = f"planted-{how}"
            log.write(log_line(record) + b"\n")
    ingest(IngestConfig(paths=(str(folder / "log.jsonl"),)), folder / "ingested")
    curate(CONFIG, folder / "ingested", folder / "curated")
    return folder / "curated", copies, traces, original


def test_planted_copies_are_on_one_side(clean, planted):
    curated, copies, _, original = planted
    tasks = pandas.read_parquet(curated / "tasks.parquet").set_index("id")["split"]
    assert tasks[original.id] == "train"
    for how in ("whitespace", "paraphrase", "renumbered"):
        assert tasks.get(copies[how].id, "train") == "train", how
    before, episodes = (pandas.read_parquet(folder / "episodes.parquet") for folder in (clean, curated))
    user = before.loc[before["split"] == "train", "user"].iloc[0]
    assert tasks[copies["user"].id] == "held_out", "the held-out task stays, and the training user's tasks give way"
    assert user in set(before.loc[before["split"] == "train", "user"]) - set(episodes.loc[episodes["split"] == "train", "user"])
    assert not json.loads((curated / "report.json").read_text())["leaks"]["found"]
    check_curated(curated, CONFIG.curation)


@pytest.mark.parametrize("how", CAUGHT_AS)
def test_forged_leaks_are_found(clean, planted, how, tmp_path, capsys):
    curated = planted[0]
    forged = forge(clean if how == "user" else curated, planted, how, tmp_path / "forged")
    with pytest.raises(LeakError, match=rf"{CAUGHT_AS[how]} .* is in held_out and train"):
        check_curated(forged, CONFIG.curation)
    command = ["stage", "warm-start", str(ROOT / "configs/tiny.yaml"), "--curated", str(forged), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert f"{CAUGHT_AS[how]} " in capsys.readouterr().err and not (tmp_path / "out").exists()


def forge(curated, planted, how, out):
    """A data set with a copy's episode on the held-out side, and the training task that it is a copy of."""
    out.mkdir()
    tasks, episodes = pandas.read_parquet(curated / "tasks.parquet"), pandas.read_parquet(curated / "episodes.parquet")
    copy, trace = planted[1][how], planted[2][how]
    logged = pandas.read_parquet(planted[0].parent / "ingested/traces.parquet").set_index("id").loc[trace]
    row = {**tasks.iloc[0].to_dict(), **copy.to_record(), "split": "held_out"}
    episode = {**episodes.iloc[0].to_dict(), "trace_id": trace, "task_id": copy.id, "split": "held_out"}
    episode |= {"user": logged["user"], "session": logged["session"]}
    pandas.concat([tasks, pandas.DataFrame([row])]).to_parquet(out / "tasks.parquet", index=False)
    pandas.concat([episodes, pandas.DataFrame([episode])]).to_parquet(out / "episodes.parquet", index=False)
    pandas.read_parquet(curated / "duplicates.parquet").to_parquet(out / "duplicates.parquet", index=False)
    return out
