"""Webhooks on how runs end: real automations of a real Prefect server, and a real HTTP server that they call."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from tracewheel.config import load_config
from tracewheel.core.errors import ConfigError

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


@pytest.mark.slow
def test_ends_are_told_and_the_address_is_not(profile, tmp_path, server, deploy, listener):
    url, told = listener
    on = ["failed", "crashed", "refused", "promoted"]
    path = with_notify(profile, tmp_path, url=url, on=on, overdue_days=20 / 86400)
    process, log = deploy(path, "--cron", "0 3 1 1 *")
    deployment = server.deployment("told")["id"]
    flow = server.deployment("told")["flow_id"]

    def ends(state, name, message):
        run = server.ask(
            "flow_runs/", {"flow_id": flow, "deployment_id": deployment, "state": {"type": "RUNNING"}, "name": name}
        )
        proposed = {"type": state, "name": name, "message": message}
        server.ask(f"flow_runs/{run['id']}/set_state", {"state": proposed, "force": True})

    ends("FAILED", "Failed", 'the "disk" is full')
    ends("COMPLETED", "Skipped", "nothing new")
    ends("COMPLETED", "Refused", "no better than the champion")
    server.until(lambda: len([1 for *_, body in told if body["event"] != "overdue"]) >= 2, "two webhooks")
    server.until(lambda: any(body["event"] == "overdue" for *_, body in told), "the overdue webhook")
    assert {(where, kind) for where, kind, _ in told} == {(f"/{SECRET}", "application/json")}
    ended = {body["state"]: body for *_, body in told if body["event"] != "overdue"}
    assert set(ended) == {"Failed", "Refused"}
    assert ended["Failed"] == {
        "text": 'retrain/told: Failed: the "disk" is full',
        "deployment": "told",
        "event": "prefect.flow-run.Failed",
        "run": "Failed",
        "state": "Failed",
        "message": 'the "disk" is full',
    }
    overdue = next(body for *_, body in told if body["event"] == "overdue")
    assert overdue["text"].startswith("retrain/told: no run was complete for")

    process.terminate()
    process.wait(timeout=60)
    _, again = deploy(path, "--cron", "0 3 1 1 *")
    automations = server.ask("automations/filter", {})
    assert [item["name"] for item in automations] == ["tracewheel told: ends (1)", "tracewheel told: overdue (1)"]
    blocks = server.ask("block_documents/filter", {})
    said = [log.read_text(), again.read_text(), server.log.read_text(), json.dumps([automations, blocks])]
    events = server.ask("events/filter", {"limit": 50})
    assert SECRET not in "".join(said) + json.dumps(events)
