"""A conversation that quotes another task's prompt or gold answer is not trained on while that task is held out."""

import json
import random
from datetime import UTC, datetime, timedelta

import pandas
import pytest

from data.workspace_logs import TRAINED_TIERS, log_record
from tracewheel.config import CurateSections, IngestConfig, RetrainConfig
from tracewheel.core.types import Task
from tracewheel.curation.curate import curate
from tracewheel.curation.quotes import HeldOutTexts, Quote
from tracewheel.curation.split_record import SplitRecord
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.traces.ingest import ingest

SIZES = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 8, "harder_tasks": 0, "min_attempts": 1}
SETTINGS = CurateSections.of(RetrainConfig(name="test", environment={"kind": "workspace"}, curation=SIZES))
GOLD = "The refund of order 77 was refused because the box had been opened by the customer's neighbour on a Sunday."


def task(name, prompt, answer):
    return Task(name, "shop", "any", 1, prompt, {}, {"answer": answer}, "exact", name)


@pytest.fixture
def quotes(tmp_path):
    """The quotes of a held-out task in conversations by task."""
    held = task("held", "Why was the refund of order 77 refused to the customer in the second week of May last year?", GOLD)

    def find(conversations, own="An answer.", prompt="What is the time?"):
        tasks = {"held": held} | {name: task(name, prompt, own) for name in conversations}
        rows = [{"id": f"trace-{name}", "messages": json.dumps(messages)} for name, messages in conversations.items()]
        pandas.DataFrame(rows).to_parquet(tmp_path / "replayed.parquet")
        texts = HeldOutTexts(["held"], tasks.__getitem__)
        return texts.quotes(tmp_path / "replayed.parquet", {f"trace-{name}": name for name in conversations})

    return find


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("text", [f"Earlier tickets: {GOLD.upper()}", f"Somebody asked: {GOLD[4:]}"])
def test_a_gold_answer_is_found_wherever_the_policy_could_see_it(quotes, role, text):
    assert quotes({"t": [{"role": role, "content": text}]}) == [Quote("t", "trace-t", "held")]


def test_arguments_are_read_and_short_answers_and_parts_are_no_quotes(quotes):
    call = {"id": "1", "type": "function", "function": {"name": "write", "arguments": json.dumps({"text": GOLD})}}
    assert quotes({"t": [{"role": "assistant", "content": "", "tool_calls": [call]}]})
    assert not quotes({"t": [{"role": "tool", "content": "The refund of order 77 was refused."}]})
    assert not quotes({"t": []})


def test_what_tasks_have_in_common_is_no_quote(quotes):
    said = [{"role": "assistant", "content": GOLD}]
    assert not quotes({"t": said}, own=GOLD), "its own gold answer is the same"
    assert quotes({"t": said}, prompt=GOLD), "a prompt that tells another task's gold answer"
    assert len(quotes({f"t{number}": said for number in range(10)})) == 10
    assert not quotes({f"t{number}": said for number in range(11)}), "a phrase of this world"


def curated(folder, records, record=None):
    folder.mkdir()
    (folder / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    ingest(IngestConfig(paths=(str(folder / "log.jsonl"),)), folder / "ingested")
    report = curate(SETTINGS, folder / "ingested", folder / "out", None, record)
    tasks = pandas.read_parquet(folder / "out/tasks.parquet")
    return tasks, report, SplitRecord.read(folder / "out")


def test_a_planted_quote_keeps_the_task_out_of_training_and_a_trained_one_keeps_out_what_it_quotes(tmp_path):
    drawn, time, records = random.Random(0), datetime(2026, 10, 1, tzinfo=UTC), []
    for number in range(60):
        one = make_task(FAMILIES[number % 4], TRAINED_TIERS[number // 4 % 3], drawn)
        records.append(log_record(one, f"user-{number}", f"s{number}", time + timedelta(seconds=number), drawn))
    tasks, report, record = curated(tmp_path / "clean", records)
    assert report["split_ledger"]["quoting"] == report["split_ledger"]["quoted"] == 0
    trained, held = (tasks[tasks["split"] == split].iloc[0] for split in ("train", "held_out"))
    place = next(n for n, one in enumerate(records) if one["messages"][1]["content"] == trained["prompt"])
    planted = json.loads(json.dumps(records[place]))
    # The agent's own words: no tool has to say them again when it is replayed.
    planted["messages"][-1]["content"] = f"Done, as for another user who said: {held['prompt']}"
    records[place] = planted

    fresh, report, _ = curated(tmp_path / "first", records)
    assert trained["id"] not in set(fresh["id"]) and held["id"] in set(fresh["id"])
    assert report["funnel"]["dropped_tasks"][trained["id"]] == "quotes a held-out task"
    assert "1 training tasks are left out for it, and 0 held-out tasks" in report["split_ledger"]["says"]
    assert (fresh["split"] == "train").sum() == 8, "another task takes its place"

    later, report, _ = curated(tmp_path / "later", records, record)
    assert held["id"] not in set(later["id"]) and trained["id"] in set(later["id"])
    assert report["split_ledger"]["quoted"] == 1
