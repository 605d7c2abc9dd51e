"""The shipped runs, unpacked once, and a dashboard over them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest
from starlette.testclient import TestClient

from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.digests import Digests, Shelf
from tracewheel.dashboard.library import Library, unpack_demo

LOCAL = "http://127.0.0.1"


@pytest.fixture(scope="session")
def shown(tmp_path_factory) -> Path:
    """The work folder of the shipped runs, for tests that only read; others copy it."""
    return unpack_demo(tmp_path_factory.mktemp("dashboard"))


@pytest.fixture(scope="session")
def library(shown) -> Library:
    return Library([shown])


@pytest.fixture(scope="session")
def client(library) -> Iterator[TestClient]:
    """A visitor of this machine."""
    with TestClient(create_app(library), base_url=LOCAL, follow_redirects=False) as visitor:
        yield visitor


@pytest.fixture(scope="session")
def whole_page():
    """Asks for a page as it asks again itself, until it shows all: digests are made within a budget of time."""

    def ask(visitor, address):
        for _ in range(20):
            answer = visitor.get(address)
            assert answer.status_code == 200, (address, answer.text[-500:])
            if not any(words in answer.text for words in ("still being read", "Reading the stored results")):
                return answer.text
        raise AssertionError(f"{address} is still being read")

    return ask


@pytest.fixture(scope="session")
def shelf(library) -> Shelf:
    """The digests of the shipped runs."""
    found = Digests(library).of(next(iter(library.places.values())), seconds=600)
    assert found.is_whole
    return found


@pytest.fixture(scope="session")
def run_ids(library) -> list[str]:
    """The shipped runs, the first one first."""
    from tracewheel.dashboard.run_rows import RunRows

    return [row.run_id for row in reversed(RunRows(library).all())]


@pytest.fixture(scope="session")
def programs(shown, tmp_path_factory) -> Path:
    """A copy of the shipped runs in which two episodes of an iteration were a program's; the other files know no branches."""
    work = shutil.copytree(
        shown, tmp_path_factory.mktemp("programs") / "programs", ignore=shutil.ignore_patterns(".dashboard*")
    )
    loop = next(iter(sorted(work.glob("*/loop.json"))))
    made = json.loads(loop.read_text())["iterations"]["1"]
    file = work / "store" / made["rollouts"][0] / "trajectories.parquet"
    table = pandas.read_parquet(file)
    messages = json.loads(table.at[0, "messages"])
    turns = json.loads(table.at[0, "turns"])
    branches = [
        {"reason": "", "agent": "", "turns": list(range(len(turns) - 1)), "messages": messages, "foreign": 0},
        {"reason": "edited", "agent": "<b>left</b>", "turns": [len(turns) - 1], "messages": messages[:3], "foreign": 1},
    ]
    rows = len(table) - 2
    table["branches"] = [json.dumps(branches), None, *[None] * rows]
    table["requests"] = [json.dumps({"asked": 9, "refused": 1, "unmatched": 3, "lost_tokens": 7}), None, *[None] * rows]
    table["fault"] = [None, "environment", *[None] * rows]
    table["traceback"] = [None, "Traceback: <script>alert(1)</script>", *[None] * rows]
    table.loc[1, ["stop_reason", "detail"]] = ["infrastructure_failed", "move_file: OSError"]
    program = {"program": {"output": "what it printed <i>", "exit_code": 3, "result": {"sum": 4}}}
    table.loc[1, "final_state"] = json.dumps({**json.loads(table.at[1, "final_state"]), **program})
    table.to_parquet(file)
    scores = work / "store" / made["scores"][0] / "scores.parquet"
    marks = pandas.read_parquet(scores)
    marks["answer"] = ["forty-two" if row == table.at[0, "id"] else None for row in marks["trajectory_id"]]
    marks["explanation"] = ["because of <u>that" if row == table.at[0, "id"] else None for row in marks["trajectory_id"]]
    marks.to_parquet(scores)
    update = work / "store" / made["update"] / "metrics.json"
    figures = {"fidelity": 0.5, "fidelity_tokens": 0.5, "requests": 9, "requests_unmatched": 3, "lost_tokens": 7}
    update.write_text(json.dumps({**json.loads(update.read_text()), **figures, "branches_edited": 1}))
    return work
