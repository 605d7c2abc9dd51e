"""The candidates of a work folder: their evidence night by night beside the boundary, on three pages."""

import http.client
import json
import shutil
import threading

import pytest
import uvicorn
from starlette.testclient import TestClient

from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.library import Library

LOCAL = "http://127.0.0.1"


def night(run, number, tasks, difference, level, boundary):
    return {
        "run": run, "at": f"2026-11-2{number}T02:00:00+00:00", "evaluations": [], "tasks": tasks, "difference": difference,
        "interval": [difference - boundary, difference + boundary], "p_value": 0.01, "level": level, "boundary": boundary,
    }  # fmt: skip


def ledger(maker, player, verdict="waiting", why=""):
    nights = [night(player, number, 60 * number, *figures) for number, figures in enumerate(
        [(0.031, 6e-8, 0.142), (0.052, 9.6e-6, 0.094), (0.061, 1.2e-4, 0.066)], 1)]  # fmt: skip
    if verdict == "promoted":
        nights.append(night(player, 4, 240, 0.058, 4.8e-4, 0.051))
    look = {"evidence": "a-b", "run": maker, "baseline": "champion", "began": "2026-11-20T02:00:00+00:00", "level": 0.003}
    candidate = {"weights": "update-0f3c", "digest": "d", "champion": "c", "planned": 300, "screens": [], "nights": nights}
    return [
        look,
        {**look, "evidence": "candidate-d-c", "level": 0.00061, "verdict": verdict, "why": why, "candidate": candidate},
    ]


@pytest.fixture
def work(shown, tmp_path, run_ids):
    """A copy of the shipped runs, whose second run plays the candidate that the first made."""
    folder = shutil.copytree(shown, tmp_path / "work")
    (folder / "gates.json").write_text(json.dumps(ledger(*run_ids)))
    return folder


@pytest.fixture
def visit(work):
    client = TestClient(create_app(Library([work])), base_url=LOCAL)
    return lambda address: client.get(address).text


def test_a_candidate_shows_its_nights_and_the_boundary(visit, run_ids):
    page = visit("/candidates")
    for said in ("waiting", "180 of 300 planned fresh tasks", "+6.1", "+6.6", "points over the champion", "promoted from here"):
        assert said in page, said
    assert "promoted from here from 14.2 at fresh tasks 60 to " in page and "at fresh tasks 300" in page
    assert "difference so far from 3.1 at fresh tasks 60 to 6.1 at fresh tasks 180" in page
    assert 'class="band s0' in page and f'href="/runs/work/{run_ids[1]}"' in page


def test_the_runs_that_made_or_played_it_and_the_list_show_it(visit, run_ids):
    for address in (f"/runs/work/{run_ids[0]}", f"/runs/work/{run_ids[1]}"):
        assert "The candidate's evidence" in visit(address)
    assert "180 of 300 planned fresh tasks" in visit("/")


def test_a_decided_candidate_waits_no_more(work, visit, run_ids):
    (work / "gates.json").write_text(json.dumps(ledger(*run_ids, "promoted", "proven: +5.8 points on 240 fresh tasks")))
    assert "proven: +5.8 points" in visit("/candidates") and "planned fresh tasks" not in visit("/candidates")
    assert 'id="candidates"' not in visit("/")


@pytest.mark.parametrize(
    "written",
    [
        "[",
        "{}",
        '[3, {"candidate": 4}]',
        '[{"candidate": {"nights": [3, {}]}}]',
        '[{"run": "<script>alert(1)</script>", "began": 7, "verdict": ["x"], "why": "<b>", "baseline": null, "candidate": '
        '{"planned": "many", "nights": [{"tasks": 9, "difference": 1e999, "interval": [1, "2"], "boundary": true}]}}]',
    ],
)
def test_a_ledger_that_nobody_wrote_shows_nothing_dangerous(work, visit, written, run_ids):
    (work / "gates.json").write_text(written)
    for address in ("/", "/candidates", f"/runs/work/{run_ids[1]}"):
        page = visit(address)
        assert "<script>alert" not in page and "</html>" in page


def test_a_real_server_answers(work):
    server = uvicorn.Server(uvicorn.Config(create_app(Library([work])), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/candidates")
        answer = connection.getresponse()
        assert answer.status == 200 and "180 of 300 planned fresh tasks" in answer.read().decode()
    finally:
        server.should_exit = True
        thread.join(20)
