"""`tracewheel curate` carries splits: from a file, from an earlier output, from a run's folder; and training checks them."""

import json
import shutil

import pandas as pd
import pytest
import yaml

from flows.cli import main
from tracewheel.config import CurationConfig, IngestConfig
from tracewheel.core.errors import LeakError
from tracewheel.curation.leaks import check_curated
from tracewheel.curation.split_record import SplitRecord
from tracewheel.traces.ingest import ingest

FEW = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 6, "harder_tasks": 2, "min_attempts": 1, "recent_share": 0.0}


@pytest.fixture(scope="module")
def curated(profile, tmp_path_factory):
    """`run(out, traces, *options)` runs the command on a third of the shipped logs (`few`) or on half of them (`more`)."""
    folder = tmp_path_factory.mktemp("curated")
    values = yaml.safe_load(profile.read_text()) | {"curation": FEW}
    with open(values["ingest"]["paths"][0], "rb") as stream:
        lines = stream.readlines()
    (folder / "profile.yaml").write_text(yaml.safe_dump(values))
    for name, share in (("few", len(lines) // 3), ("more", len(lines) // 2)):
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines[:share]))
        ingest(IngestConfig(paths=(str(folder / f"{name}.jsonl"),)), folder / name)

    def run(out, traces, *options):
        command = ["curate", str(folder / "profile.yaml"), "--traces", str(folder / traces), "--out", str(folder / out)]
        assert main([*command, *map(str, options)]) == 0
        return folder / out

    run("first", "few", "--splits", folder / "splits.parquet")
    return folder, run


def splits_of(out):
    tasks = pd.read_parquet(out / "tasks.parquet").set_index("id")
    return tasks["split"].to_dict()


def test_a_carried_file_an_earlier_output_and_a_run_give_the_same_splits(curated):
    folder, run = curated
    assert (folder / "splits.parquet").read_bytes() == (folder / "first/splits.parquet").read_bytes()
    later = run("later", "more", "--splits", folder / "splits.parquet")
    assert SplitRecord.read(folder / "splits.parquet").number == 2
    by_hand = run("by_hand", "more", "--earlier", folder / "first")
    (folder / "work/run1").mkdir(parents=True)
    (folder / "work/run1/loop.json").write_text(json.dumps({"curated": "curate-1"}))
    shutil.copytree(folder / "first", folder / "work/store/curate-1")
    of_run = run("of_run", "more", "--earlier", folder / "work/run1")
    assert splits_of(later) == splits_of(by_hand) == splits_of(of_run)
    first = {task: split for task, split in splits_of(folder / "first").items() if split in ("held_out", "harder")}
    assert first.items() <= splits_of(later).items()


def test_an_output_without_a_record_is_read_from_its_splits(curated, tmp_path):
    folder, run = curated
    old = shutil.copytree(folder / "first", tmp_path / "old")
    (old / "splits.parquet").unlink()
    later = splits_of(run("after_old", "more", "--earlier", old))
    held = {task for task, split in later.items() if split in ("held_out", "harder")}
    before = splits_of(old)
    assert not held & {task for task, split in before.items() if split in ("train", "validation")}
    assert {task for task, split in before.items() if split in ("held_out", "harder")} <= held


def test_training_refuses_a_folder_that_holds_out_what_is_on_record_as_trained_on(curated, tmp_path):
    """Earlier trained on, and no longer in the training split: only the record knows."""
    folder, _ = curated
    forged = shutil.copytree(folder / "first", tmp_path / "forged")
    tasks, episodes = (pd.read_parquet(forged / name) for name in ("tasks.parquet", "episodes.parquet"))
    users = set(episodes.loc[episodes["split"] == "train", "user"])
    moved = set(episodes.loc[episodes["user"].isin(users), "task_id"])
    tasks.loc[tasks["id"].isin(moved), "split"] = "held_out"
    episodes.loc[episodes["task_id"].isin(moved), "split"] = "held_out"
    tasks.to_parquet(forged / "tasks.parquet")
    episodes.to_parquet(forged / "episodes.parquet")
    with pytest.raises(LeakError, match=r"fingerprint trained earlier .* is in held_out and train"):
        check_curated(forged, CurationConfig(**FEW))
    (forged / "splits.parquet").unlink()
    assert check_curated(forged, CurationConfig(**FEW)) == []
