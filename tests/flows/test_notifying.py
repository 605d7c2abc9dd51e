"""Webhooks on how runs end: real runs, a real Prefect server, real signals, and a real HTTP server that is called."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
import yaml

from tasks.records.telling import UNTOLD_FILE
from tracewheel.config import load_config
from tracewheel.core.errors import ConfigError
from tracewheel.core.processes import free_port
from tracewheel.core.types import content_hash

SECRET = "hooks-secret-t0ken"


@pytest.fixture
def listener():
    """An HTTP server and what it was told."""
    told = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{SECRET}", told
    server.shutdown()
    server.server_close()


def with_notify(profile, tmp_path, **notify):
    values = yaml.safe_load(profile.read_text())
    values |= {"name": "told", "work_dir": str(tmp_path / "runs"), "schedule": {"notify": [notify]}}
    path = tmp_path / "nightly.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize(
    "notify, said",
    [
        ({}, "give either url or url_env"),
        ({"url": "https://a/b", "url_env": "HOOK"}, "give either url or url_env"),
        ({"url": "hooks.example.com/x"}, "give an address as in https://host/path"),
        ({"url": "https://a/b", "on": ["sunrise"]}, "schedule.notify.0.on.0"),
        ({"url": "https://a/b", "on": []}, "tells nothing"),
        ({"url": "https://a/b", "overdue_days": 0}, "greater than 0"),
    ],
)
def test_a_wrong_setting_is_refused_without_its_address(profile, tmp_path, notify, said):
    with pytest.raises(ConfigError, match=said) as refusal:
        load_config(str(with_notify(profile, tmp_path, **notify)))
    assert "hooks.example.com" not in str(refusal.value)


def test_an_address_in_the_environment(profile, tmp_path, monkeypatch):
    config = load_config(str(with_notify(profile, tmp_path, url_env="HOOK")))
    monkeypatch.delenv("HOOK", raising=False)
    with pytest.raises(ConfigError, match="the environment variable HOOK is not set"):
        config.schedule.notify[0].address()
    monkeypatch.setenv("HOOK", "https://host/x")
    assert config.schedule.notify[0].address() == "https://host/x"


def test_an_address_is_in_no_record_of_the_profile(profile, tmp_path):
    config = load_config(str(with_notify(profile, tmp_path, url=f"https://host/{SECRET}")))
    assert SECRET not in json.dumps(config.model_dump(mode="json")) + repr(config)


def notify_of(url, **notify):
    return f"schedule.notify={json.dumps([{'url': url, **notify}])}"


@pytest.mark.usefixtures("prefect_harness")
def test_a_run_tells_its_own_end_at_once_and_once(work, listener):
    url, told = listener
    work.complete(120)
    notify = notify_of(url, on=["skipped", "failed"])
    message = work.tick(notify).message
    ((where, kind, body),) = told
    assert (where, kind) == (f"/{SECRET}", "application/json")
    assert (body["deployment"], body["event"], body["state"]) == (work.name, "prefect.flow-run.Skipped", "Skipped")
    assert body["message"] == message and body["text"] == f"retrain/{work.name}: Skipped: {message}"
    failed = work.tick(notify, "policy.base=/no/such/base")
    assert failed.is_failed() and len(told) == 2
    assert told[1][2]["state"] == "Failed" and "/no/such/base" in told[1][2]["message"]
    work.tick(notify_of(url, on=["refused"]))
    assert len(told) == 2, "it is not what was asked for"


@pytest.mark.usefixtures("prefect_harness")
def test_what_a_webhook_did_not_take_is_told_with_the_next_end(work, listener, capsys):
    url, told = listener
    work.complete(120)
    port = url.rpartition(":")[2].partition("/")[0]
    away = url.replace(port, str(free_port()))
    work.tick(notify_of(away, on=["skipped"]))
    said = capsys.readouterr().err
    assert "does not answer (URLError)" in said and SECRET not in said
    (waiting,) = json.loads((work.folder / UNTOLD_FILE).read_text())
    assert waiting["state"] == "Skipped" and SECRET not in json.dumps(waiting)
    (work.folder / UNTOLD_FILE).write_text(json.dumps([waiting | {"to": content_hash(url)}]))  # it has come back
    work.tick(notify_of(url, on=["skipped"]))
    assert [body["state"] for *_, body in told] == ["Skipped", "Skipped"]
    assert json.loads((work.folder / UNTOLD_FILE).read_text()) == []


def runs_of(deploy):
    """The processes of a deploy's runs."""
    return [child for child in psutil.Process(deploy.pid).children() if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.slow
def test_kills_and_stops_are_told_once_each_and_a_restart_loses_none(work, server, deploy, listener):
    url, told = listener
    work.write(200)
    notify = notify_of(url, on=["failed", "crashed", "stopped", "promoted"], overdue_days=20 / 86400)
    options = ("--cron", "0 3 1 1 *", "--run-dir", work.folder, "--set", notify)
    said = []

    def start():
        process, log = deploy(work.profile, *options)
        said.append(log)
        return process

    def begin(process):
        run = server.start_run(work.name)
        server.until(lambda: (work.folder / ".flow_runs" / run["id"]).is_file() and runs_of(process), "the run")
        server.until(lambda: list(work.folder.glob("*/state.json")), "its record")
        return run["name"]

    def ends(number):
        def look():
            found = [(body["run"], body["state"]) for *_, body in told if body["event"] != "overdue"]
            return found if len(found) >= number else None

        return server.until(look, f"{number} webhooks")

    process = start()
    automations = server.ask("automations/filter", {})
    names = [begin(process)]
    for run in runs_of(process):
        run.kill()  # as for want of memory
    assert ends(1) == [(names[0], "Crashed")]
    names.append(begin(process))
    for run in [*runs_of(process), process]:
        run.kill()  # as in a power cut
    process.wait()
    process = start()
    assert ends(2)[1] == (names[1], "Crashed")
    names.append(begin(process))
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert ends(3)[2] == (names[2], "Stopped")
    server.until(lambda: any(body["event"] == "overdue" for *_, body in told), "the overdue webhook")
    overdue = next(body for *_, body in told if body["event"] == "overdue")
    assert overdue["text"].startswith(f"retrain/{work.name}: no run was complete for")
    start()
    ours = [item for item in server.ask("automations/filter", {}) if work.name in item["name"]]
    assert [item["id"] for item in ours] == [item["id"] for item in automations if work.name in item["name"]]
    assert len(ends(3)) == 3, "once each"
    blocks = server.ask("block_documents/filter", {})
    events = server.ask("events/filter", {"limit": 50})
    logs = [log.read_text() for log in said]
    assert SECRET not in "".join([*logs, server.log.read_text(), json.dumps([automations, blocks, events])])
