"""Langfuse's API over HTTP, in the shapes of its own client (langfuse 5.0): pages, cursors, refusals, rate limits."""

import base64
import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from flows.cli import main
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.traces.sources import fetch_new, located
from tracewheel_sources import asking, langfuse


class Project:
    """A project's observations and scores, and what its server is to answer next instead."""

    def __init__(self):
        self.observations, self.scores, self.asked, self.instead = [], [], [], []
        self.is_old = False

    def answer(self, path, query):
        if self.is_old:
            return self.old_answer(path, query)
        of_scores = path == langfuse.SCORES
        rows, column = (self.scores, "timestamp") if of_scores else (self.observations, "startTime")
        name = "Timestamp" if of_scores else "StartTime"
        begin, end = query.get(f"from{name}", ""), query[f"to{name}"]
        rows = sorted((row for row in rows if begin <= row[column] < end), key=lambda row: row[column], reverse=True)
        first = int(base64.b64decode(query["cursor"]).decode()) if "cursor" in query else 0
        last = first + 2
        meta = {"cursor": base64.b64encode(str(last).encode()).decode()} if last < len(rows) else {}
        return {"data": rows[first:last], "meta": meta | ({"limit": 2} if of_scores else {})}

    def old_answer(self, path, query):
        """As version 3 answers: numbered pages, and each trace with its observations."""
        if path.startswith(f"{langfuse.OLD_TRACES}/"):
            rows = [row for row in self.observations if row["traceId"] == path.rpartition("/")[2]]
            inner = [{name: value for name, value in row.items() if name not in ("sessionId", "userId")} for row in rows]
            return {"id": rows[0]["traceId"], "name": "shed", "sessionId": "s-1", "userId": "u-1", "observations": inner}
        traces = {row["traceId"]: row["startTime"] for row in reversed(self.observations)}
        rows = {
            langfuse.OLD_TRACES: [{"id": name, "timestamp": at, "observations": []} for name, at in traces.items()],
            langfuse.OLD_SCORES: [{**row, "traceId": row["subject"]["id"], "subject": None, "value": 1} for row in self.scores],
        }.get(path)
        if rows is None:
            return None
        found = [row for row in rows if query.get("fromTimestamp", "") <= row["timestamp"] < query["toTimestamp"]]
        number = int(query["page"])
        meta = {"page": number, "limit": 1, "totalItems": len(found), "totalPages": len(found)}
        return {"data": found[number - 1 : number], "meta": meta}


@pytest.fixture
def project(monkeypatch):
    found = Project()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            found.asked.append((parts.path, query, self.headers["authorization"]))
            answer = found.instead.pop(0) if found.instead else (200, {}, found.answer(parts.path, query))
            status, headers, body = (404, {}, {}) if answer[2] is None else answer
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-very-secret")
    monkeypatch.setenv("LANGFUSE_BASE_URL", f"http://127.0.0.1:{server.server_port}")
    found.waits = []
    monkeypatch.setattr(asking.time, "sleep", found.waits.append)
    yield found
    server.shutdown()
    server.server_close()


def iso(minutes_ago):
    return (datetime.now(UTC) - timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def trace(name, minutes_ago):
    """Three observations of a conversation."""
    ask = [{"role": "user", "content": f"How many {name}?"}]
    rows = [("AGENT", None, {"question": ask[0]["content"]}, "Seven."), ("GENERATION", f"{name}-0", ask, "Seven.")]
    return [
        {
            "id": f"{name}-{number}", "traceId": name, "projectId": "p", "type": kind, "parentObservationId": parent,
            "name": kind.lower(), "startTime": iso(minutes_ago - number / 60), "endTime": iso(minutes_ago - 0.1),
            "level": "DEFAULT", "environment": "production", "sessionId": "s-1", "userId": "u-1",
            "input": json.dumps(given), "output": json.dumps({"role": "assistant", "content": said}), "model": "m",
        }
        for number, (kind, parent, given, said) in enumerate(rows)
    ]  # fmt: skip


def score(name, minutes_ago, value=True):
    at = iso(minutes_ago)
    subject = {"kind": "trace", "id": name}
    about = {"projectId": "p", "source": "API", "environment": "production", "createdAt": at, "updatedAt": at, "timestamp": at}
    return {"id": f"sc-{name}", "name": "success", "dataType": "BOOLEAN", "value": value, "subject": subject, **about}


def lines(folder):
    return sorted(json.loads(line)["id"] for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines())


def fetch(tmp_path, address="langfuse:"):
    paths = located([address], tmp_path / "sources")
    return fetch_new(paths)[0]


def test_settled_traces_and_scores_are_fetched_once_page_by_page(project, tmp_path):
    project.observations = trace("rakes", 600) + trace("saws", 60) + trace("new", 5)
    project.scores = [score("rakes", 300), score("saws", 50), score("new", 1)]
    found = fetch(tmp_path)
    assert (found.files, found.lines) == (2, 7)
    assert lines(tmp_path) == ["rakes-0", "rakes-1", "saws-0", "saws-1", "sc-new", "sc-rakes", "sc-saws"]
    path, query, shown = project.asked[0]
    assert (path, query["fields"]) == (langfuse.OBSERVATIONS, langfuse.FIELDS)
    assert base64.b64decode(shown.removeprefix("Basic ")) == b"pk-lf-1:sk-lf-very-secret"
    assert fetch(tmp_path).lines == 0
    project.observations += trace("late", 45)
    for row in project.observations:
        if row["traceId"] == "new":
            row["startTime"], row["endTime"] = iso(31), iso(31)
    project.scores.append(score("late", 1))
    assert fetch(tmp_path).lines == 5
    assert lines(tmp_path)[:4] == ["late-0", "late-1", "new-0", "new-1"]
    assert fetch(tmp_path).lines == 0
    assert not any("secret" in file.read_text() for file in tmp_path.rglob("*") if file.is_file())


def test_ingest_reads_a_project_and_again_only_what_is_new(project, tmp_path, capsys):
    project.observations, project.scores = trace("rakes", 600), [score("rakes", 500)]
    arguments = ["ingest", "langfuse:", "--out", str(tmp_path / "out"), "--json"]
    assert main([*arguments, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][0]["lines"] == 3
    assert not (tmp_path / "out-sources").exists()
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 1
    import pandas

    (row,) = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")
    assert (row["id"], row["session"], row["user"], row["outcome"]) == ("rakes", "s-1", "u-1", 1.0)
    project.observations += trace("saws", 60)
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kept"], report["added"]["read"]) == (2, 1)


def test_a_server_of_version_3_is_read_by_the_older_api(project, tmp_path, capsys):
    project.is_old = True
    project.observations = trace("rakes", 600) + trace("saws", 60) + trace("new", 5)
    project.scores = [score("rakes", 300), score("saws", 50)]
    arguments = ["ingest", "langfuse:", "--out", str(tmp_path / "out"), "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 2
    import pandas

    rows = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")
    assert {(row["id"], row["session"], row["user"], row["outcome"]) for row in rows} == {
        ("rakes", "s-1", "u-1", 1.0), ("saws", "s-1", "u-1", 1.0)
    }  # fmt: skip
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["added"]["read"] == 0


def test_a_rate_limit_is_waited_for_and_faults_are_tried_again(project, tmp_path):
    project.observations = trace("rakes", 600)
    project.instead = [(429, {"retry-after": "7"}, b"slow"), (502, {}, b""), (503, {"retry-after": "9999"}, b"")]
    assert fetch(tmp_path).lines == 2
    assert project.waits == [7.0, 2.0, asking.LONGEST_WAIT]


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ((401, {}, {"message": "Invalid credentials"}), ConfigError, "set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"),
        ((404, {}, {}), ConfigError, "has no /api/public/traces; is it the right server"),
        ((400, {}, {"message": "bad"}), InfrastructureError, "answers 400"),
        ((200, {}, b"<html>"), InfrastructureError, "no JSON"),
        ((200, {}, []), InfrastructureError, "not an object"),
        ((200, {}, {"data": 3}), InfrastructureError, "without a list"),
        ((302, {"location": "http://127.0.0.1:1/"}, b""), InfrastructureError, "answers 302"),
        ((200, {}, {"data": [], "meta": {"cursor": "x"}}), InfrastructureError, "without an end"),
    ],
)
def test_answers_that_cannot_be_used_are_named_and_nothing_is_kept(project, tmp_path, monkeypatch, answer, error, says):
    project.instead = [answer] * (6 if answer[0] != 200 else 3)
    with pytest.raises(error, match=says):
        fetch(tmp_path)
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_an_answer_is_bounded(project, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "LARGEST", 100)
    project.observations = trace("rakes", 600)
    with pytest.raises(InfrastructureError, match="more than"):
        fetch(tmp_path)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("langfuse:ftp://host", "give the address of the server"),
        ("langfuse:https://me:pw@host", "no name or password"),
        ("langfuse:?colour=red", "no option 'colour'"),
        ("langfuse:?settle=soon", "'settle' is a number"),
        ("langfuse:?since=soon", "'since' is a time"),
    ],
)
def test_addresses_that_are_wrong_are_refused(project, tmp_path, address, says):
    with pytest.raises(ConfigError, match=says):
        fetch(tmp_path, address)


def test_missing_keys_are_named(project, tmp_path, monkeypatch):
    monkeypatch.delenv("LANGFUSE_SECRET_KEY")
    with pytest.raises(ConfigError, match="set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"):
        fetch(tmp_path)
