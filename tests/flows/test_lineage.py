"""Lineage of a finished run: back to the log lines, forward from a user, in every format, and from every name."""

import json
import random
import shutil
import threading
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

from flows.setup import resolve_config
from tasks.closing.lineage import told
from tasks.engine.drivers import DirectDriver
from tasks.engine.run import Run, Silent
from tracewheel.config.profile import OpenLineageConfig
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file, digest_of
from tracewheel.core.processes import free_port
from tracewheel.core.store import FACTS, Store
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.dashboard.graph import lineage_page
from tracewheel.lineage.backward import trace_back
from tracewheel.lineage.forward import affected
from tracewheel.lineage.graph import Graph, Node
from tracewheel.lineage.log_lines import ingest_of, lines_of
from tracewheel.lineage.mermaid import mermaid
from tracewheel.lineage.work_folder import WorkFolder, stage_of
from tracewheel.traces.places import read_stretch

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "data" / "traces"


@pytest.fixture(scope="session")
def folder(finished):
    return WorkFolder(finished[0])


@pytest.fixture(scope="session")
def lineage_record(finished):
    folder, _, summary = finished
    return json.loads((folder / summary["run_id"] / "lineage.json").read_text())


def test_the_record_names_results_with_digests_that_are_right(finished, lineage_record, folder):
    path, _, summary = finished
    named = [*lineage_record["datasets"].values(), *lineage_record["policies"].values()]
    named += [entry for splits in lineage_record["evaluations"].values() for entry in splits.values()]
    named += [entry for made in lineage_record["iterations"]["rl"].values() for entry in made.get("rollouts", [])]
    store = Store(path / "store")
    for one in named:
        if "entry" in one:
            assert store.find(*one["entry"].rsplit("-", 1)).digest == one["digest"]
    record = path / summary["run_id"]
    for one in (lineage_record["gate"], lineage_record["environment"], lineage_record["datasets"]["splits"]):
        assert digest_file(record / one["file"]) == one["sha256"]
    assert lineage_record["policies"]["rl"]["adapter"]["digest"] == digest_of(Path(summary["adapter"]))
    assert lineage_record["chosen"]["iteration"] == summary["best_iteration"]
    assert lineage_record["parent"] is None and lineage_record["gate"]["verdict"] == summary["gate"]["verdict"]


def test_evaluations_can_be_told_apart(finished, folder):
    evaluations = [name for name in folder.entries if stage_of(name) == "evaluate"]
    labels = {(folder.label(name), json.dumps(folder.made(name)["arguments"], sort_keys=True)) for name in evaluations}
    assert len(labels) == len(evaluations) > 8
    assert any(label == "evaluate rl-1 validation" for label, _ in labels)
    for name in evaluations:
        policy = folder.made(name)["arguments"]["policy"]
        assert policy["policy"] == "base" or policy["entry"] in folder.entries


def test_a_hundred_episodes_lead_back_to_the_line_they_were_read_from(folder):
    last = max((name for name in folder.adapters() if stage_of(name) == "update"), key=folder.finished)
    table = trace_back(folder, last).learned
    curated = table["curated"].iloc[0]
    episodes = pd.read_parquet(folder.path_of(curated) / EPISODES_FILE).set_index("trace_id")
    assert set(table["road"]) == {"demonstration", "rollouts"}
    traces = sorted(set(table["trace_id"]))
    chosen = random.Random(0).sample(traces, min(100, len(traces)))
    lines = lines_of(folder, ingest_of(folder, curated), chosen)
    for trace in chosen:
        (place,) = lines.stretches[trace]
        raw = (LOGS / place.file).read_bytes().splitlines()[place.line - 1]
        assert read_stretch(LOGS / place.file, place) == raw
        assert json.loads(raw)["messages"] == json.loads(episodes.loc[trace, "messages"])


def test_forward_and_backward_agree(folder):
    last = max((name for name in folder.adapters() if stage_of(name) == "update"), key=folder.finished)
    back = trace_back(folder, last)
    learned = back.learned["trace_id"].iloc[0]
    found = affected(folder, "trace", [learned])
    assert last in found.holds and {hold.entry for hold in found.adapters} >= {last}
    assert {stage_of(name) for name in found.holds} >= {"ingest", "curate", "warm_start", "rollout", "score", "update"}
    tables = [pd.read_parquet(path) for path in folder.store.glob("ingest-*/traces.parquet")]
    every = pd.concat(tables)
    strange = sorted(set(every["id"]) - set(back.learned["trace_id"]))
    apart = affected(folder, "trace", strange[:1])
    assert last not in apart.holds or not apart.holds[last].traces
    user = every.set_index("id").loc[learned, "user"]
    of_user = affected(folder, "user", [user])
    assert of_user.traces == set(every.loc[every["user"] == user, "id"])
    assert set(found.holds) <= set(of_user.holds)
    assert of_user.runs.keys() == folder.runs.keys()
    json.dumps(of_user.to_record())


def test_a_store_of_an_earlier_version_still_reads(finished, tmp_path):
    path, _, _ = finished
    old = tmp_path / "runs"
    shutil.copytree(path, old, ignore=shutil.ignore_patterns(".prefect", ".beside", "mlflow*", "artifacts"))
    for file in (old / "store" / FACTS).iterdir():
        facts = json.loads(file.read_text())
        facts.pop("made")
        file.write_text(json.dumps(facts))
    folder = WorkFolder(old)
    last = max((name for name in folder.adapters() if stage_of(name) == "update"), key=folder.finished)
    found, now = trace_back(folder, last), trace_back(WorkFolder(path), last)
    assert set(now.learned["trace_id"]) <= set(found.learned["trace_id"])
    trace = now.learned["trace_id"].iloc[0]
    assert last in affected(folder, "trace", [trace]).holds


def test_the_command_finds_an_adapter_by_every_name(finished, profile, run, tmp_path, lineage_record):
    path, _, summary = finished
    chosen = lineage_record["policies"]["rl"]
    exported = tmp_path / "exported"
    shutil.copytree(summary["adapter"], exported)
    (exported / "README.md").write_text("a card")
    names = [summary["run_id"], path / summary["run_id"], summary["adapter"], exported, chosen["adapter"]["digest"][:12]]
    name = json.loads((path / "store" / FACTS / f"{chosen['entry']}.json").read_text())["made"]["label"]
    for target in [*names, chosen["entry"], f"tracewheel-workspace/{summary['model_version']}"]:
        code, out, err = run("lineage", profile, target, "--run-dir", path, "--json", "--limit", 2)
        assert code == 0, err
        found = json.loads(out)
        same = {"digest", "weights"} & {key for key, value in found["adapter"].items() if value == chosen["adapter"].get(key)}
        assert same, (target, name)
        kinds = {node["kind"] for node in found["graph"]["nodes"]}
        assert kinds >= {"adapter", "dataset", "log file", "log line", "trace", "task"}


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href") and not value.startswith("#")]


def test_the_command_shows_a_user_in_every_format(finished, profile, run, tmp_path):
    path, _, _ = finished
    code, out, err = run("lineage", profile, "user-003", "--run-dir", path, "--limit", 3)
    assert code == 0 and "workspace.jsonl:" in out and "(--limit 0 shows all)" in out, err
    assert len(out.splitlines()) < 60
    code, out, _ = run("lineage", profile, "user-003", "--run-dir", path, "--format", "mermaid")
    assert code == 0 and out.startswith("flowchart LR\n")
    page = tmp_path / "page.html"
    assert run("lineage", profile, "user-003", "--run-dir", path, "--format", "html", "--out", page)[0] == 0
    tags = Tags()
    tags.feed(page.read_text())
    assert "svg" in tags.tags and "script" not in tags.tags and tags.links == []
    code, _, err = run("lineage", profile, "nobody", "--run-dir", path)
    assert code == 2 and "nobody" in err
    assert run("lineage", profile, "user-003", "--run-dir", path, "--limit", -1)[0] == 2


def test_names_from_logs_are_text_in_pages_and_charts():
    graph = Graph()
    evil = '"]; click n0 "javascript:alert(1)" <script>alert(1)</script>'
    graph.link(Node("trace", evil), Node("task", "t"), evil)
    page = lineage_page(graph, evil, [("user", evil)], [evil])
    assert "<script" not in page
    chart = mermaid(graph)
    assert len(chart.splitlines()) == 4 and "<" not in chart and chart.count('"') == 6


class Receiver:
    """A server that takes events as OpenLineage's endpoint does."""

    def __init__(self, status=201):
        self.events = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/api/v1/lineage" and self.headers["Content-Type"] == "application/json":
                    outer.events.append(json.loads(body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/api/v1/lineage"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver():
    started = []

    def start(status=201):
        started.append(Receiver(status))
        return started[-1]

    yield start
    for one in started:
        one.close()


def told_run(finished, profile, said, **settings):
    """The finished run, with a receiver of OpenLineage's events."""
    path, _, summary = finished
    config = resolve_config(str(profile), [], str(path))
    tracking = config.tracking.model_copy(update={"openlineage": OpenLineageConfig(**settings)})

    class Said(Silent):
        def say(self, text):
            said.append(text)

    return Run.on(config.model_copy(update={"tracking": tracking}), summary["run_id"], Said(), DirectDriver())


def test_openlineage_gets_the_run_and_its_stages_over_http_and_in_a_file(finished, profile, receiver, tmp_path, folder):
    taker, said, file = receiver(), [], tmp_path / "events" / "run.jsonl"
    with told(told_run(finished, profile, said, url=taker.url, file=str(file), namespace="here")):
        pass
    events = taker.events
    assert said == [] and events == [json.loads(line) for line in file.read_text().splitlines()]
    whole = [event for event in events if "parent" not in event["run"]["facets"]]
    assert [event["eventType"] for event in whole] == ["START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in whole}) == 1
    stages = [event for event in events if "parent" in event["run"]["facets"]]
    assert {event["run"]["facets"]["parent"]["run"]["runId"] for event in stages} == {whole[0]["run"]["runId"]}
    assert {event["outputs"][0]["name"] for event in stages if event["outputs"]} == set(folder.entries)
    update = next(event for event in stages if event["job"]["name"].endswith(".update") and event["outputs"])
    assert {stage_of(one["name"]) for one in update["inputs"]} == {"rollout", "score", "warm_start"}
    for event in events:
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys() and event["job"]["namespace"] == "here"


@pytest.mark.slow
def test_a_whole_run_tells_a_receiver_of_itself(command, profile, receiver, tmp_path):
    taker = receiver()
    settings = ["--set", f"tracking.openlineage={{url: '{taker.url}', namespace: here}}", "--set", "comparison={}"]
    done = command("retrain", profile, "--run-dir", tmp_path / "runs", "--json", *settings)
    assert done.returncode in (0, 3), done.stderr
    assert "OpenLineage" not in done.stderr
    events, made = taker.events, WorkFolder(tmp_path / "runs")
    record = made.runs[json.loads(done.stdout)["run_id"]].lineage
    assert (events[0]["eventType"], events[-1]["eventType"]) == ("START", "COMPLETE")
    assert events[0]["run"]["runId"] == events[-1]["run"]["runId"]
    assert [one["name"] for one in events[-1]["outputs"]] == [record["policies"]["rl"]["entry"]]
    stages = [event for event in events if "parent" in event["run"]["facets"]]
    assert {one["name"] for event in stages for one in event["outputs"]} == set(made.entries)
    assert {one["namespace"] for event in events for one in (*event["inputs"], *event["outputs"])} == {"here"}


@pytest.mark.parametrize("status", [500, None])
def test_a_receiver_that_fails_or_is_away_stops_no_run(finished, profile, receiver, status):
    taker, said = receiver(status or 201), []
    url = taker.url.replace("http://", "http://someone:hunter2@")
    if status is None:
        url = f"http://someone:hunter2@127.0.0.1:{free_port()}/api/v1/lineage"
    ended = []
    with told(told_run(finished, profile, said, url=url)):
        ended.append(True)
    assert ended and len(said) == 2 and all("OpenLineage" in text and "hunter2" not in text for text in said)


def test_a_run_that_fails_is_told_as_failed(finished, profile, receiver):
    taker, said = receiver(), []
    with pytest.raises(DataError), told(told_run(finished, profile, said, url=taker.url)):
        raise DataError("a stage failed")
    assert [event["eventType"] for event in taker.events if "parent" not in event["run"]["facets"]] == ["START", "FAIL"]


def test_the_run_notes_what_its_adapter_learned_from(finished, folder, lineage_record):
    path, _, summary = finished
    kept = pd.read_parquet(path / summary["run_id"] / "learned.parquet")
    table = trace_back(folder, lineage_record["policies"]["rl"]["entry"]).learned
    assert set(kept["trace_id"]) == set(table["trace_id"]) and lineage_record["learned"]["traces"] == kept["trace_id"].nunique()
    assert {"user", "session", "source_file", "source_line"} <= set(kept) and kept["source_line"].notna().all()
