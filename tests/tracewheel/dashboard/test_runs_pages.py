"""The pages of runs, over the shipped ones and over what a run leaves that was killed, is running, or lost its store."""

import json
import os
import re
import shutil
import socket
from datetime import UTC, datetime
from types import SimpleNamespace

import pandas
import pytest
from starlette.testclient import TestClient

from tracewheel.core.errors import InputError
from tracewheel.core.run_record import RunRecord
from tracewheel.dashboard import view
from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.files import export_runs
from tracewheel.dashboard.library import Library
from tracewheel.report.doctor import RunRecords
from tracewheel.report.doctor.checks.rewards import sandbox_findings
from tracewheel.report.doctor.episode_rows import episode_rows


@pytest.fixture
def copied(shown, tmp_path, run_ids):
    """A copy of the last run that a test may change, and a dashboard over it."""
    work = tmp_path / "work"
    shutil.copytree(shown, work)
    client = TestClient(create_app(Library([work])), base_url="http://127.0.0.1")
    return work / run_ids[-1], client, f"/runs/work/{run_ids[-1]}"


def running(record, process):
    """Make the record that of a run whose gate has not come yet."""
    for name in ("summary.json", "gate.json", "changes.json", "doctor.json"):
        (record / name).unlink(missing_ok=True)
    loop = json.loads((record / "loop.json").read_text())
    last = max(loop["iterations"], key=int)
    del loop["iterations"][last]
    (record / "loop.json").write_text(json.dumps(loop))
    state = {"state": "running", "stage": f"rollout {last}", "process": process, "host": socket.gethostname()}
    (record / "state.json").write_text(json.dumps(state | {"started": datetime.now(UTC).isoformat()}))
    return len(loop["iterations"])


def test_a_run_shows_road_gate_families_findings_and_costs(client, run_ids):
    text = client.get(f"/runs/demo/{run_ids[-1]}").text
    for words in ("The road", "all tasks", "Holm", "Validation success", "Traces kept", "The doctor", "all stages", "Lineage"):
        assert words in text, words
    assert 'class="band s0' in text  # intervals of the validations
    assert f"compare?run=demo%2F{run_ids[0]}&amp;run=demo%2F{run_ids[-1]}" in text  # its settings beside its parent's


def with_sandbox_findings(record, client_of):
    """Let three episodes of the first iteration have run code that a sandbox found something of, and the doctor look."""
    made = json.loads((record / "loop.json").read_text())["iterations"]["1"]
    file = record.parent / "store" / made["rollouts"][0] / "trajectories.parquet"
    table = pandas.read_parquet(file)
    found = [["escape", "memory"], ["memory"], [], ["escape"]]
    table["final_state"] = [json.dumps({"files": {}, "findings": names}) for names in found] + list(table["final_state"][4:])
    table.to_parquet(file)
    records = RunRecords(client_of.app.state.desk.library.run("work", record.name).config)
    records.__dict__["episodes"] = episode_rows(table, pandas.DataFrame(columns=["trajectory_id"]), None, 1)
    (record / "doctor.json").write_text(json.dumps({"findings": [sandbox_findings(records).to_record()]}))
    return table["id"].tolist()


def test_what_the_sandbox_found_is_listed_by_kind_with_its_episodes(copied):
    record, client, address = copied
    ids = with_sandbox_findings(record, client)
    page = client.get(address).text
    row = re.search(r"<tr data-row><th scope=\"row\">sandbox findings.*?</tr>", page, re.DOTALL)[0]
    assert "severe" in row and "episodes that ran code 4; escape 2; memory 2" in row and "?iteration=1" in row
    lists = {
        name: re.findall(r'<a href="([^"]+)">(\w+)</a>', part)
        for name, part in re.findall(r"(Episodes with \w+): (.*?)</span>", row)
    }
    assert {name: [one for _, one in links] for name, links in lists.items()} == {
        "Episodes with escape": [ids[0], ids[3]],
        "Episodes with memory": [ids[0], ids[1]],
    }
    for link, _ in lists["Episodes with escape"]:
        assert "escape" in client.get(link).text


def test_links_of_a_run_lead_somewhere(client, run_ids):
    text = client.get(f"/runs/demo/{run_ids[-1]}").text
    links = set(re.findall(r'href="(/runs/[^"#]*(?:episodes|pair|tasks|rollouts)[^"#]*)"', text))
    assert any("/pair?" in link for link in links)
    for link in sorted(links)[:25]:
        assert client.get(link.replace("&amp;", "&")).status_code == 200, link


def test_a_running_run_says_how_far_it_is_and_its_page_is_loaded_anew_at_its_end(copied):
    record, client, address = copied
    done = running(record, os.getpid())
    page = client.get(address).text
    assert 'hx-trigger="every 2s"' in page
    assert "No gate has decided on this run yet" in page
    answer = client.get(f"{address}/live", headers={"hx-request": "true", "hx-target": "moving"})
    assert f"iteration {done} of {done + 1} complete" in answer.text
    assert "HX-Refresh" not in answer.headers
    running(record, 2**22 + 1)  # no such process
    ended = client.get(f"{address}/live", headers={"hx-request": "true"})
    assert ended.headers["HX-Refresh"] == "true"
    assert "crashed" in client.get(address).text


def test_a_run_without_its_store_says_what_is_missing(copied):
    record, client, address = copied
    shutil.rmtree(record.parent / "store")
    page = client.get(address)
    assert page.status_code == 200
    assert "has freed what these curves are drawn from" in page.text
    assert "The store holds no rollouts of this run" in client.get(f"{address}/rollouts").text


def test_rollouts_count_every_episode_and_follow_filters(client, run_ids, whole_page):
    address = f"/runs/demo/{run_ids[-1]}/rollouts"
    text = whole_page(client, address)
    for words in ("Stop reasons", "Parts of the reward", "Diversity within groups", "At which step they fail", "move_file"):
        assert words in text, words
    assert 'id="iteration-2"' in text
    assert 'id="iteration-2"' not in client.get(f"{address}?from=1&to=1").text


SIZES = """{% extends "base.html" %}{% block title %}Sizes{% endblock %}
{% block main %}<p>{{ count }} runs, {{ said }}</p>{% endblock %}"""


@pytest.fixture
def wheel(monkeypatch):
    """Puts entry points of a wheel in the place of all wheels'."""

    def install(*points):
        for known in (view.wheel_pages, view.environment):
            known.cache_clear()
        monkeypatch.setattr(view, "entry_points", lambda group: points if group == view.WHEELS else ())

    yield install
    for known in (view.wheel_pages, view.environment):
        known.cache_clear()


def test_a_page_of_a_wheel_is_in_the_bar_and_what_it_says_is_escaped(wheel, library, run_ids, tmp_path, capsys):
    (tmp_path / "sizes.html").write_text(SIZES)

    @view.page("/sizes", "sizes.html", tab=view.Tab("Sizes", "z", 1), folder=tmp_path)
    def sizes(ask):
        return {"count": len(ask.desk.rows.all()), "said": "<script>"}

    def broken():
        raise ImportError("no such module")

    wheel(SimpleNamespace(name="sizes", load=lambda: sizes), SimpleNamespace(name="broken", load=broken))
    with TestClient(create_app(library), base_url="http://127.0.0.1") as visitor:
        assert '<a href="/sizes" data-go="z">Sizes</a>' in visitor.get("/").text
        assert f"<p>{len(run_ids)} runs, &lt;script&gt;</p>" in visitor.get("/sizes").text
    assert "page 'broken' of a wheel cannot be loaded: no such module" in capsys.readouterr().err


def test_without_the_wheel_that_compares_nothing_leads_to_it(wheel, library, shown, run_ids, tmp_path):
    wheel()
    with TestClient(create_app(library), base_url="http://127.0.0.1") as visitor:
        assert "/compare" not in visitor.get("/").text + visitor.get("/help").text
        assert visitor.get("/compare").status_code == 404
    with pytest.raises(InputError, match="tracewheel-lab, which compares runs, is not installed"):
        export_runs([RunRecord(shown, name) for name in run_ids], tmp_path / "runs.html")


def test_prices_of_the_address_price_the_runs(client):
    assert " USD" in client.get("/?hour=3600&currency=USD").text
    assert " USD" not in client.get("/?hour=dear&currency=USD").text


def test_filters_leave_out_runs(client, run_ids):
    assert all(name in client.get("/").text for name in run_ids)
    none = client.get("/?since=2999-01-01", headers={"hx-target": "table"}).text
    assert "No run passes these filters" in none
    assert "<html" not in none


def test_help_explains_each_figure_with_its_unit(client):
    text = client.get("/help").text
    assert "nats a token" in text
    assert 'id="metrics"' in text
