"""`tracewheel data diff`, from the command line."""

import json

import pandas as pd
import pytest

from flows.cli import main


@pytest.fixture(scope="module")
def made(profile, tmp_path_factory):
    """Curated logs of the profile."""
    folder = tmp_path_factory.mktemp("made")
    assert main(["ingest", str(profile), "--out", str(folder / "ingested")]) == 0
    assert main(["curate", str(profile), "--traces", str(folder / "ingested"), "--out", str(folder / "curated")]) == 0
    return folder / "curated"


def test_a_data_set_is_the_same_as_itself(run, made):
    code, out, _ = run("data", "diff", made, made, "--json")
    assert code == 0 and json.loads(out)["same"] is True


def test_a_changed_task_is_in_the_table_and_in_the_list(run, made, tmp_path):
    tasks = pd.read_parquet(made / "tasks.parquet")
    tasks.loc[0, "tier"] += 1
    tasks.iloc[:-1].to_parquet(tmp_path / "tasks.parquet")
    (tmp_path / "episodes.parquet").write_bytes((made / "episodes.parquet").read_bytes())
    code, out, _ = run("data", "diff", made, tmp_path)
    assert code == 0
    assert f"changed {tasks['id'][0]}: tier" in out and f"removed {tasks['id'].iloc[-1]}" in out
    code, out, _ = run("data", "diff", made, tmp_path, "--json")
    found = json.loads(out)
    assert (found["same"], found["tasks"]["removed"], found["tasks"]["changed"]) == (False, 1, 1)


@pytest.mark.parametrize("arguments", [("nowhere", "nowhere"), (".", "."), (".", ".", "--limit", "-1")])
def test_a_folder_without_a_data_set_is_bad_input(run, arguments):
    code, out, err = run("data", "diff", *arguments)
    assert (code, out) == (2, "") and err.startswith("tracewheel: error:") and "Traceback" not in err
