"""`tracewheel export-openlineage`: a shipped run as events, in a file and over HTTP."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flows.cli import main
from tracewheel import FinishedRun, run_named
from tracewheel.dashboard.library import unpack_demo


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return unpack_demo(tmp_path_factory.mktemp("openlineage"))


@pytest.fixture
def receiver():
    """A server that takes events as OpenLineage's endpoint does, and no others."""
    events = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken = self.path == "/api/v1/lineage" and self.headers["Content-Type"] == "application/json"
            events.extend([body] * taken)
            self.send_response(201 if taken else 500)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://someone:hunter2@127.0.0.1:{server.server_port}/api/v1/lineage", events
    server.shutdown()
    server.server_close()


def test_a_run_and_its_stages_are_told_over_http_and_in_a_file(work, receiver, tmp_path):
    url, events = receiver
    file = tmp_path / "run.jsonl"
    assert main(["export-openlineage", str(work), "--url", url, "--out", str(file), "--namespace", "here"]) == 0
    assert events == [json.loads(line) for line in file.read_text().splitlines()]
    run = FinishedRun(run_named(str(work)))
    whole = [event for event in events if "parent" not in event["run"]["facets"]]
    stages = [event for event in events if "parent" in event["run"]["facets"]]
    assert [event["eventType"] for event in whole] == ["START", "COMPLETE"] and (whole[0], whole[1]) == (events[0], events[-1])
    assert {event["run"]["facets"]["parent"]["run"]["runId"] for event in stages} == {whole[0]["run"]["runId"]}
    assert {one["name"] for event in stages for one in event["outputs"]} == {one.name for one in run.entries if one.is_stored}
    assert [one["name"] for one in whole[1]["outputs"]] == [run.lineage["policies"]["rl"]["entry"]]
    update = next(event for event in stages if event["job"]["name"].endswith(".update") and event["outputs"])
    assert {one["name"].rpartition("-")[0] for one in update["inputs"]} >= {"rollout", "score"}
    assert {one["namespace"] for event in events for one in (event["job"], *event["inputs"], *event["outputs"])} == {"here"}


def test_a_receiver_that_fails_is_named_without_its_password(work, receiver, capsys):
    url, _ = receiver
    assert main(["export-openlineage", str(work), "--url", f"{url}/elsewhere"]) == 1
    said = capsys.readouterr().err
    assert "takes no events" in said and "hunter2" not in said
    assert main(["export-openlineage", str(work)]) == 2
