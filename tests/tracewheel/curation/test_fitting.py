"""Sets fit the logs that there are: few tasks, few attempts, no harder tier, tasks that hang together."""

import json
from collections import Counter

import pandas
import pytest

from tracewheel.config import CurationConfig, IngestConfig, RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.curate import curate
from tracewheel.curation.fitting import describe_components, fit
from tracewheel.traces.ingest import ingest

DEFAULTS = CurationConfig()
LOGS = "data/traces/workspace.jsonl"


def tasks_with(attempts, tiers=(1,), per_component=1):
    rows = [
        {
            "id": f"t{n:03}",
            "family": "a",
            "tier": tiers[n % len(tiers)],
            "attempts": count,
            "component": f"c{n // per_component}",
        }
        for n, count in enumerate(attempts)
    ]
    return pandas.DataFrame(rows)


def test_attempts_fall_only_as_far_as_the_training_set_needs():
    """80 of 500 tasks have three attempts, so 72 can be trained on at three."""
    fitted = fit(tasks_with([3] * 80 + [1] * 420), DEFAULTS)
    assert fitted.changes == {"harder_tasks": 0, "min_attempts": 3}
    assert Counter(filter(None, fitted.split.values())) == {"train": 72, "validation": 120, "held_out": 200}


def test_one_attempt_a_task_is_enough_and_sides_follow_the_shares():
    fitted = fit(tasks_with([1] * 40), DEFAULTS)
    assert fitted.changes == {"harder_tasks": 0, "min_attempts": 1}
    assert Counter(fitted.side.values()) == {"train": 24, "validation": 6, "test": 10}


def test_tasks_never_scored_leave_no_attempts_to_ask_for():
    assert fit(tasks_with([0] * 40), DEFAULTS).changes["min_attempts"] == 0


def test_a_harder_tier_is_kept_where_it_can_be_filled():
    tasks = tasks_with([4] * 600, tiers=(1, 2, 3, 5))
    assert fit(tasks, CurationConfig(train_tasks=300)).changes == {}
    assert fit(tasks, CurationConfig(train_tasks=300, harder_tasks=151)).changes == {"harder_tasks": 0}
    above = tasks_with([4] * 600, tiers=(1, 2, 5, 6))
    assert fit(above, DEFAULTS).changes == {"harder_tasks": 0}, "tasks above the harder tier would be lost"


def test_a_large_component_trains_and_the_rest_is_shared():
    tasks = tasks_with([1] * 40).assign(component=["all"] * 30 + [f"c{n}" for n in range(10)])
    sides = fit(tasks, DEFAULTS).side
    assert sides["all"] == "train" and {"validation", "test"} <= set(sides.values())
    assert fit(tasks_with([1] * 3), DEFAULTS).side.keys() == {"c0", "c1", "c2"}
    with pytest.raises(DataError, match="the 40 usable tasks hang together in 2"):
        fit(tasks_with([1] * 40, per_component=20), DEFAULTS)


def test_what_ties_a_component_is_told_without_its_name():
    rows = pandas.DataFrame(
        {
            "id": ["a", "b", "c", "d"],
            "task_id": ["1", "2", "3", "4"],
            "user": ["Ada", "Ada", "Ada", None],
            "session": list("xyyz"),
        }
    )
    tasks = pandas.DataFrame({"id": list("1234"), "component": ["1", "1", "1", "4"]})
    described = describe_components(tasks, rows, None)
    assert described == {"count": 2, "largest": {"tasks": 3, "share": 0.75, "tied_by": {"user": 3, "session": 2}}}


@pytest.fixture(scope="module")
def lines():
    good = []
    with open(LOGS, "rb") as stream:
        for line in stream:
            try:
                record = json.loads(line)
                if record["environment"]["goal"] and record["messages"][0]["role"] == "system":
                    good.append(record)
            except (ValueError, KeyError, TypeError):
                continue
    return good


@pytest.fixture
def curated(tmp_path):
    def curated(lines, **settings):
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        ingest(IngestConfig(paths=(str(tmp_path / "log.jsonl"),)), tmp_path / "ingested")
        config = RetrainConfig(name="test", environment={"kind": "workspace"}, curation=CurationConfig(**settings))
        return curate(config, tmp_path / "ingested", tmp_path / "out")

    return curated


def test_a_log_with_one_attempt_a_task_gives_sets_by_default(lines, curated):
    first = {json.dumps(line["environment"]): line for line in lines}
    few = [line | {"user": f"u{n}", "session": None} for n, line in enumerate(list(first.values())[:60])]
    report = curated(few)
    used = report["counts"]["used"]
    assert used["min_attempts"] == 1 and used["train_tasks"] > used["held_out_tasks"] > used["validation_tasks"] > 3
    assert (
        sum(used[f"{split}_tasks"] for split in ("train", "validation", "held_out", "harder")) == report["funnel"]["tasks_used"]
    )
    assert report["counts"]["says"][0] == f"72 train_tasks were asked for, the logs give {used['train_tasks']}"
    assert any("min_attempts is 1" in said for said in report["counts"]["says"])
    with pytest.raises(DataError, match=r"train: 0 tasks .* or set curation\.counts to 'auto'.*min_attempts 1"):
        curated(few, counts="exact")


def test_one_user_for_everything_is_said(lines, curated):
    with pytest.raises(DataError, match=r"holds \d+ tasks \(100%\): one value of user ties \d+ tasks"):
        curated([line | {"user": "everyone"} for line in lines[:60]])


def test_a_full_log_gives_what_was_asked_for(lines, curated):
    report = curated(lines)
    assert report["counts"]["says"] == [] and report["counts"]["used"] == report["counts"]["asked"]
