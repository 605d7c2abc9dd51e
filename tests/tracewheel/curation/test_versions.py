"""Traces of another system prompt or other tools than today's: counted, and left out or rewritten as the profile says."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from tracewheel.config import CurateSections, IngestConfig, load_config
from tracewheel.curation.curate import curate
from tracewheel.curation.versions import ANY, Today, Version, Versions, todays
from tracewheel.environments import make_environment
from tracewheel.traces.ingest import ingest

ORDER_DESK = '{"kind": "several", "args": {"members": [{"kind": "workspace"}, {"kind": "order_desk"}]}}'


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def trace(prompt, tools, created, *, calls=("stock",), inferred=False):
    called = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in calls]
    said = [{"role": "assistant", "content": None, "tool_calls": called}]
    system = [] if prompt is None else [{"role": "system", "content": prompt}]
    messages = [*system, {"role": "user", "content": "How many {rakes}?"}, *said]
    return {"messages": json.dumps(messages), "tools": json.dumps(tools), "tools_inferred": inferred, "created": created,
            "environment": '{"kind": "shed"}'}  # fmt: skip


NEW, OLD = [tool("stock"), tool("open")], [tool("stock")]
TRACES = [
    trace("Be brief. Today is 2026-11-02.", NEW, "2026-11-02"),
    trace("Be brief. Today is 2026-11-01.", NEW[::-1], "2026-11-01"),
    trace("Be kind.", NEW, "2026-10-01"),
    trace("Be brief. Today is 2026-09-01.", OLD, "2026-09-01"),
    trace("Be kind.", OLD, "2026-08-01", calls=("gone",)),
    trace(None, OLD, None, inferred=True),
]


def taken(how, today):
    versions = Versions(dict(today), how)
    return versions.take(pyarrow.Table.from_pylist(TRACES)).to_pylist(), versions.report()


@pytest.fixture(params=["environment", "latest"])
def today(request):
    prompt = "Be brief. Today is 2026-11-02."
    return {ANY: Today(Version.of(prompt, NEW), prompt, NEW)} if request.param == "environment" else {}


def test_other_versions_are_counted_and_kept(today):
    rows, report = taken("keep", today)
    assert rows == TRACES
    assert (report["traces"], report["versions"], report["left_out"]) == (3, 3, 0)
    assert [(one["last"], one["differs"]) for one in report["seen"]] == [
        ("2026-08-01", ["the system prompt", "the tools"]), ("2026-09-01", ["the tools"]), ("2026-10-01", ["the system prompt"])
    ]  # fmt: skip
    assert "3 traces, the last of 2026-10-01" in report["says"] and "curation.other_versions" in report["says"]


def test_other_versions_are_left_out(today):
    rows, report = taken("leave_out", today)
    assert rows == [TRACES[0], TRACES[1], TRACES[5]] and report["left_out"] == 3


def test_other_versions_are_rewritten_where_their_tools_are_still_there(today):
    rows, report = taken("rewrite", today)
    assert report["left_out"] == 1 and len(rows) == 5
    for row in rows[2:4]:
        messages = json.loads(row["messages"])
        assert messages[0]["content"] == "Be brief. Today is 2026-11-02." and messages[1]["role"] == "user"
        assert json.loads(row["tools"]) == NEW
    assert [rows[0], rows[1], rows[4]] == [TRACES[0], TRACES[1], TRACES[5]]


def test_members_have_versions_of_their_own():
    found = todays(ORDER_DESK)
    assert set(found) == {"workspace", "order_desk"}
    assert found["order_desk"].tools == make_environment("order_desk").tools()
    assert set(todays("workspace")) == {"workspace"}


def test_a_changed_prompt_is_said_by_the_curation(tmp_path):
    ingest(IngestConfig(paths=("data/traces/workspace.jsonl",)), tmp_path)
    config = CurateSections.of(load_config("configs/tiny.yaml"))
    assert "versions" not in curate(config, tmp_path, tmp_path / "as_logged")
    [part] = (tmp_path / "traces.parquet").glob("*.parquet")
    table = pyarrow.parquet.read_table(part)
    said = [
        text.replace("file-management agent.", "file agent.") if place < 100 else text
        for place, text in enumerate(table["messages"].to_pylist())
    ]
    place = table.schema.get_field_index("messages")
    pyarrow.parquet.write_table(table.set_column(place, table.schema.field(place), pyarrow.array(said)), part)
    report = curate(config, tmp_path, tmp_path / "kept")
    assert report["versions"]["traces"] == 100 and report["versions"]["says"].startswith(
        "The system prompt differs from today's"
    )
    changed = config.model_copy(update={"curation": config.curation.model_copy(update={"other_versions": "leave_out"})})
    left = curate(changed, tmp_path, tmp_path / "left")
    assert left["funnel"]["traces"] == report["funnel"]["traces"] - 100
