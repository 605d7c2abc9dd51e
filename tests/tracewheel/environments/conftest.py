"""Traces to record: a small shop whose stock depends on purchases, and the airline of tau-bench."""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from tracewheel.core.kind_table import give
from tracewheel.core.types import Trace
from tracewheel.environments.recorded.build import build_recording

TAU_BENCH = Path(__file__).parents[4] / "shared/traces/tau_bench/gpt-4o-airline.tasks0-24.json"
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


SHOP_TOOLS = [tool("stock", item=TEXT), tool("buy", item=TEXT, count=NUMBER), tool("think", thought=TEXT), tool("leave")]


def conversation(*turns, system="You keep a shop."):
    """Messages from turns: ("user", text), ("say", text), or (tool, arguments, reply); a reply of None is not logged."""
    messages = [{"role": "system", "content": system}]
    for number, turn in enumerate(turns):
        match turn:
            case ("user", text):
                messages.append({"role": "user", "content": text})
            case ("say", text):
                messages.append({"role": "assistant", "content": text})
            case (name, arguments, reply):
                function = {"name": name, "arguments": json.dumps(arguments)}
                call = {"id": f"call-{number}", "type": "function", "function": function}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                if reply is not None:
                    messages.append({"role": "tool", "tool_call_id": f"call-{number}", "name": name, "content": reply})
    return messages


def record(identity, messages, *, task=None, outcome=None, tools=SHOP_TOOLS, **changes):
    """A Trace record."""
    values = {"environment": None, "session": None, "user": None, "created": None, "model": None}
    trace = Trace(id=identity, messages=messages, tools=tools, outcome=outcome, source_file="f", source_line=1, **values)
    return {**trace.to_record(), "task": task, "tools": json.dumps(tools), **changes}


BOUGHT = [("stock", {"item": "tea"}, "3"), ("buy", {"item": "tea", "count": 2}, "ok"), ("stock", {"item": "tea"}, "1")]


def shop():
    """Four traces of two tasks: the stock of tea is 3 at first, 1 after two are bought, and 0 after three."""
    ask, other = ("user", "Two teas."), ("user", "All the tea.")
    three = [("buy", {"item": "tea", "count": 3}, "ok"), ("stock", {"item": "tea"}, "0"), ("say", "Sold out.")]
    return pd.DataFrame(
        [
            record("a-win", conversation(ask, *BOUGHT, ("say", "Done.")), task="two", outcome=1.0),
            record("a-loss", conversation(ask, BOUGHT[0], ("say", "There are three.")), task="two", outcome=0.0),
            record("a-long", conversation(ask, BOUGHT[0], BOUGHT[0], ("say", "Three.")), task="two", outcome=0.0),
            record("b-win", conversation(other, *three), task="all", outcome=1.0),
        ]
    )


@pytest.fixture(scope="session")
def logs():
    """Helpers for tests that make their own traces."""
    names = {"conversation": conversation, "record": record, "shop": shop, "tool": tool}
    return SimpleNamespace(**names, shop_tools=SHOP_TOOLS, bought=BOUGHT, text=TEXT, number=NUMBER)


@pytest.fixture
def make_recording(tmp_path):
    """Records traces; returns the environment's kind and the contents of `recording.json`."""

    def make(traces, name="recording", **options):
        about = build_recording(traces, tmp_path / name, **options)
        return give(f"recorded:{tmp_path / name}"), about

    return make


@pytest.fixture(scope="session")
def airline():
    """The 100 traces of the airline, read without Tracewheel's readers."""
    if not TAU_BENCH.is_file():
        pytest.skip(f"{TAU_BENCH} is not here")
    rows = []
    for line, logged in enumerate(json.loads(TAU_BENCH.read_text())):
        names = sorted({call["function"]["name"] for message in logged["traj"] for call in message.get("tool_calls") or []})
        identity, tools = f"{logged['task_id']:02d}-{logged['trial']}", [tool(name) for name in names]
        row = record(identity, logged["traj"], task=str(logged["task_id"]), outcome=logged["reward"], tools=tools)
        rows.append({**row, "tools_inferred": True, "source_line": line})
    return pd.DataFrame(rows)
