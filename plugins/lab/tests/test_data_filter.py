"""`tracewheel data filter`, from the command line."""

import json

import pandas as pd
import pytest

from tracewheel import digest_of


def test_a_filter_is_tried_without_changing_anything(run, made):
    """Compared with the same sums in plain pandas, in total and by split."""
    before = digest_of(made[1])
    code, out, _ = run("data", "filter", made[1], "0 < pass_rate < 0.6 and attempts >= 4", "--json")
    found = json.loads(out)
    tasks = pd.read_parquet(made[1] / "tasks.parquet")
    rate, often = tasks["pass_rate"].between(0, 0.6, inclusive="neither"), tasks["attempts"] >= 4
    assert code == 0 and found["filter"] == "0 < pass_rate < 0.6 and attempts >= 4"
    assert (found["tasks"], found["kept"]) == (len(tasks), int((rate & often).sum())) and 0 < found["kept"] < len(tasks)
    assert found["clauses"] == [
        {
            "clause": "0 < pass_rate < 0.6",
            "removes": int((~rate).sum()),
            "unknown": 0,
            "removes_alone": int((~rate & often).sum()),
        },
        {"clause": "attempts >= 4", "removes": int((~often).sum()), "unknown": 0, "removes_alone": int((rate & ~often).sum())},
    ]
    kept = tasks[rate & often].groupby("split").size()
    assert {name: part["kept"] for name, part in found["splits"].items()} == kept.reindex(
        tasks["split"].unique(), fill_value=0
    ).to_dict()
    assert {name: part["tasks"] for name, part in found["splits"].items()} == tasks.groupby("split").size().to_dict()
    assert sum(part["clauses"][1]["removes"] for part in found["splits"].values()) == int((~often).sum())
    assert digest_of(made[1]) == before


def test_a_filter_is_shown_as_a_table(run, made):
    code, out, _ = run("data", "filter", made[1], "attempts >= 4 and family in ['list']")
    tasks = pd.read_parquet(made[1] / "tasks.parquet")
    kept = int(((tasks["attempts"] >= 4) & (tasks["family"] == "list")).sum())
    assert code == 0 and f"{kept} of {len(tasks)} tasks are kept" in out
    for word in ("attempts >= 4", "held_out", "harder", "alone"):
        assert word in out


@pytest.mark.parametrize(
    ("written", "said", "place"),
    [
        ("attempts >=", "this is no filter", 11),
        ("family == 'Ä' )", "this is no filter", 14),
        ("attempts > 1 and tries > 2", "there is no column 'tries'", 17),
    ],
)
def test_a_wrong_filter_is_bad_input_with_its_place(run, made, written, said, place):
    code, out, err = run("data", "filter", made[1], written)
    assert (code, out) == (2, "") and said in err and "Traceback" not in err
    shown, mark = err.splitlines()[-2:]
    assert shown.strip() == written and mark.index("^") - shown.index(written) == place
    code, out, _ = run("data", "filter", made[1], written, "--json")
    assert code == 2 and json.loads(out)["exit_code"] == 2


def test_a_folder_without_tasks_cannot_be_filtered(run, made, tmp_path):
    code, _, err = run("data", "filter", made[0], "attempts > 1")
    assert code == 2 and "tasks.parquet: no such file" in err
    pd.DataFrame({"id": ["a"]}).to_parquet(tmp_path / "tasks.parquet")
    code, _, err = run("data", "filter", tmp_path, "")
    assert code == 2 and "no column 'split'" in err
