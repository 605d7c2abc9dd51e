"""The quality report: its numbers by hand, its page deaf to hostile logs, equal for equal data."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.errors import DataError
from tracewheel.curation.quality import BINS, histogram, quality_report, run_funnel, write_quality
from tracewheel.dashboard.files import write_quality_page

HOSTILE = "</style><script>document.title='owned'</script><img src=x onerror=\"alert(1)\"><!--&amp;"
TOOLS = json.dumps([{"type": "function", "function": {"name": name}} for name in ("look", "take")])


def messages(*calls, words="Done."):
    spoken = [{"role": "user", "content": HOSTILE}]
    for number, (name, reply) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps({"n": number, "text": HOSTILE})}
        spoken.append({"role": "assistant", "tool_calls": [{"id": str(number), "type": "function", "function": function}]})
        spoken.append({"role": "tool", "tool_call_id": str(number), "content": reply})
    return json.dumps([*spoken, {"role": "assistant", "content": words}])


def episode(identity, task, split, success, *calls):
    return {
        "trace_id": identity, "task_id": task, "split": split, "success": success, "user": None, "session": identity,
        "messages": messages(*calls), "tools": TOOLS,
    }  # fmt: skip


EPISODES = [
    episode("win", "t1", "train", 1.0, ("look", "ok"), ("take", "ok")),
    episode("loss", "t1", "train", 0.0, ("look", "ok"), ("look", "error: no")),
    episode("invented", "t2", "train", 0.0, ("steal", "error: no such tool")),
    episode("unknown", "t2", "train", None, ("look", "ok")),
    episode("secret", "t3", "held_out", 1.0, ("take", "ok")),
]
TASKS = [
    {"id": f"t{n}", "family": family, "tier": n, "split": split, "prompt": HOSTILE, "fingerprint": f"f{n}",
     "initial_state": f"s{n}", "goal": "g", "successes": won, "attempts": 1}
    for n, family, split, won in ((1, "a", "train", 1), (2, "b", "train", 0), (3, "b", "held_out", 1))
]  # fmt: skip
CURATION = {
    "funnel": {
        "traces": 9, "dropped_traces": {"no environment logged": 2}, "replayed": 7, "unscored": 1, "tasks": 5,
        "dropped_tasks": {"x": "solved by doing nothing"}, "tasks_unused": 1, "tasks_used": 3,
    },
    "drift": {"logged_rewards": 5, "reward": 1, "observations": 0},
}  # fmt: skip
INGEST = {"read": 12, "kept": 9, "duplicates": 2, "quarantined": 1, "by_reason": {"not JSON": 1}, "redacted": {"e-mail": 4}}


@pytest.fixture
def folders(tmp_path):
    curated, ingested = tmp_path / "curated", tmp_path / "ingested"
    for folder, report in ((curated, CURATION), (ingested, INGEST)):
        folder.mkdir()
        (folder / "report.json").write_text(json.dumps(report))
    pd.DataFrame(TASKS).to_parquet(curated / "tasks.parquet")
    pd.DataFrame(EPISODES).to_parquet(curated / "episodes.parquet")
    return curated, ingested


def test_the_funnel_counts_losses_at_each_step(folders):
    steps = [(step["unit"], step["name"], step["count"], step["lost"]) for step in quality_report(*folders)["funnel"]]
    assert steps == [
        ("traces", "read", 12, {}),
        ("traces", "kept", 9, {"duplicates": 2, "not JSON": 1}),
        ("traces", "replayed", 7, {"no environment logged": 2}),
        ("traces", "scored", 6, {"unscored": 1}),
        ("tasks", "found", 5, {}),
        ("tasks", "fit to be set", 4, {"solved by doing nothing": 1}),
        ("tasks", "in a split", 3, {"not needed": 1}),
    ]
    for (_, _, before, _), (_, _, after, lost) in pairwise(steps[:4]):
        assert before - sum(lost.values()) == after


def test_rates_tools_and_failures_by_hand(folders):
    data = quality_report(*folders)
    assert data["outcomes"]["sources"] == {"verified": 4, "logged": 0, "judged": 0, "unknown": 1}
    train, held_out = data["outcomes"]["by_split"]
    assert (train["name"], train["rate"], train["episodes"], train["unknown"], train["tasks"]) == ("train", 0.25, 4, 1, 2)
    assert held_out["rate"] == 1.0 and held_out["low"] < 1.0
    assert data["failures"]["kinds"] == {"invented_tool": 1, "wrong_final_state": 1}
    assert data["failures"]["details"]["wrong_final_state"] == {"called look, never take": 1}
    tools = {tool["name"]: tool for tool in data["tools"]}
    assert list(tools) == ["look", "take", "steal"]
    assert tools["look"] == {"name": "look", "calls": 4, "episodes": 3, "offered": 5, "errors": 1, "success": 0.5}
    assert tools["steal"]["offered"] == 0 and tools["steal"]["errors"] == 1
    assert data["divergence"]["mean"] == 1.0
    assert data["families"][1] == {
        "name": "b", "tasks": 2, "splits": {"train": 1, "validation": 0, "held_out": 1, "harder": 0},
        "tiers": {"2": 1, "3": 1}, "never_solved": 1,
    }  # fmt: skip
    assert data["redactions"] == {"e-mail": 4} and data["quarantine"] == {"not JSON": 1}


def test_the_interval_of_one_task_is_wide(folders):
    """Four attempts, one of them good: its mean is known to be 25%, that of tasks like it is not."""
    attempts = [episode(f"e{n}", "t1", "train", float(n == 0), ("look", "ok")) for n in range(4)]
    pd.DataFrame(attempts).to_parquet(folders[0] / "episodes.parquet")
    (train,) = quality_report(*folders)["outcomes"]["by_split"]
    assert train["rate"] == 0.25 and train["low"] < 0.1 and train["high"] > 0.7


def test_without_the_ingested_folder_its_parts_are_none(folders):
    data = quality_report(folders[0])
    assert data["redactions"] is None and data["quarantine"] is None and data["formats"] is None
    assert data["funnel"][0] == {"name": "kept", "unit": "traces", "count": 9, "lost": {}}


def test_a_leak_is_found_and_shown(folders):
    assert quality_report(*folders)["leaks"]["found"] is False
    leaking = [*EPISODES, episode("again", "t3", "train", 1.0)]
    pd.DataFrame(leaking).to_parquet(folders[0] / "episodes.parquet")
    data = quality_report(*folders)
    assert data["leaks"]["found"] and "t3" in data["leaks"]["says"]
    assert 'class="notice bad"' in write_quality_page(data, folders[0]).read_text()


def test_examples_show_each_kind_and_nothing_held_out(folders):
    examples = quality_report(*folders)["examples"]
    assert {item["trace"] for item in examples} == {"win", "loss", "invented"}
    loss = next(item for item in examples if item["trace"] == "loss")
    assert loss["diverges_from"] == "win" and loss["messages"][loss["diverges_message"]]["role"] == "assistant"
    assert len(quality_report(*folders, examples=1)["examples"]) == 1


class Page(HTMLParser):
    """Which elements there are, whether each is closed, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.links, self.ids, self.text = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        self.links += [attributes[name] for name in ("href", "src", "action") if name in attributes]
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_self_contained_and_escapes_logs(folders, tmp_path):
    text = write_quality_page(quality_report(*folders), tmp_path).read_text()
    page = Page(text)
    assert not page.open and not {"script", "img", "link", "iframe", "form"} & set(page.tags)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert not re.search(r"url\(|@import|https?://", text) and "default-src 'none'" in text
    assert HOSTILE in "".join(page.text) and "first divergence from the success" in text
    assert str(tmp_path) not in text and "prefers-color-scheme: dark" in text


def test_the_json_is_that_of_the_report_and_equal_for_equal_data(folders, tmp_path):
    data = quality_report(*folders)
    for name in ("one", "other"):
        write_quality(quality_report(*folders), tmp_path / name)
    assert json.loads((tmp_path / "one/quality.json").read_text()) == json.loads(json.dumps(data))
    assert (tmp_path / "one/quality.json").read_bytes() == (tmp_path / "other/quality.json").read_bytes()
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["quality.json"], "a stage writes data, and no page"


def test_parts_of_curations_report_are_repeated(folders):
    extra = {"duplicates": {"near": 3}, "leaks": {"found": False, "says": "All four checks passed."}, "probes": {"fit": 4}}
    (folders[0] / "report.json").write_text(json.dumps(CURATION | extra))
    data = quality_report(*folders)
    assert data["leaks"]["says"] == "All four checks passed." and data["duplicates"] == {"near": 3}
    page = write_quality_page(data, folders[0]).read_text()
    assert "All four checks passed." in page and "Probes of tasks" in page


def test_missing_files_are_errors_that_name_them(folders, tmp_path):
    with pytest.raises(DataError, match="report.json: no such file"):
        quality_report(tmp_path)
    (folders[0] / "tasks.parquet").unlink()
    with pytest.raises(DataError, match="tasks.parquet: no such file"):
        quality_report(*folders)


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_a_histogram_counts_every_value_once(values):
    found = histogram(values)
    assert sum(found["counts"]) == len(values) and 1 <= len(found["counts"]) <= BINS
    for index, count in enumerate(found["counts"]):
        low = found["start"] + index * found["width"]
        assert count == sum(low <= value < low + found["width"] for value in values)
    assert found["least"] <= found["median"] <= found["ninth_decile"] <= found["most"] == max(values)


def test_a_runs_funnel_says_whose_word_outcomes_are_and_what_is_imitated():
    intake = INGEST | {
        "found": 15,
        "held": 3,
        "outcomes": {"known": {"logged": 2, "thumb": 4, "label": 0, "without an outcome": 3}},
    }
    report = {
        "funnel": CURATION["funnel"] | {"superseded": 1, "recorded": {"by": "episode", "left_out": {"no user message": 1}}},
        "labels": {"outcomes": {"verified": 0, "logged": 4, "judged": 0, "unknown": 1}},
        "sets": {"rows": {"demonstrations": 2}, "left_out": {"a turn was cut": 1}},
    }
    steps = {f"{step['unit']} {step['name']}": step for step in run_funnel(report, intake)}
    assert next(iter(steps)) == "records in the logs" and steps["records in the logs"]["lost"] == {"held back from training": 3}
    assert steps["traces kept"]["of"] == {"logged": 2, "thumb": 4, "without an outcome": 3}
    assert steps["traces replayed"]["lost"] == {
        "a longer version is there": 1, "no environment logged": 2, "no user message": 1,
    }  # fmt: skip
    assert steps["tasks fit to be set"]["lost"] == {"solved by doing nothing": 1}
    assert (steps["episodes of these tasks"]["count"], steps["episodes of these tasks"]["of"]) == (
        5,
        {"logged": 4, "unknown": 1},
    )
    assert (steps["demonstrations to imitate"]["count"], steps["demonstrations to imitate"]["lost"]) == (
        2,
        {"a turn was cut": 1},
    )
    assert run_funnel({}, {}) == []
