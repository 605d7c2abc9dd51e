"""What `tracewheel deploy` refuses before it starts anything: one sentence that names the option and what to do."""

import argparse
import contextlib
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from flows.deploy.checks import check_triggers
from flows.deploy.server import PORT_FILE, choose_port
from tracewheel.config import load_config
from tracewheel.core.errors import ConfigError
from tracewheel.core.processes import free_port

NIGHTLY = ("--cron", "0 3 * * *")


@pytest.fixture
def deploy(run, profile, tmp_path, monkeypatch):
    """Runs the command, which must end at once and start nothing: exit code and what it says."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(*arguments):
        started = time.monotonic()
        code, _, said = run("deploy", profile, "--run-dir", tmp_path / "runs", *arguments)
        assert time.monotonic() - started < 20  # with room for a busy machine: a server takes longer to come up
        assert not (tmp_path / "runs" / "prefect-server.log").exists()
        assert said.startswith("tracewheel: error: ") and len(said.splitlines()) == 1, said
        return code, said.removeprefix("tracewheel: error: ").strip()

    return call


@pytest.fixture
def taken():
    """A port at which something else listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--cron", "99 99 * * *"), '--cron "99 99 * * *": no cron schedule; give minute, hour'),
        (("--cron", ""), '--cron "": no cron schedule'),
        (("--cron", "0 3 31 2 *"), '--cron "0 3 31 2 *": never comes: day of month 31 is in none of the months "2"'),
        (("--cron", "0 3 31 4,6,9,11 *"), '--cron "0 3 31 4,6,9,11 *": never comes: day of month 31'),
        (("--cron", "0 0 30 feb 1"), '--cron "0 0 30 feb 1": never comes: day of month 30'),  # Prefect finds no Monday either
        (("--interval", "0"), "--interval 0: give seconds between 1 and 31622400"),
        (("--interval", "-5"), "--interval -5: give seconds"),
        (("--interval", "nan"), "--interval nan: give seconds"),
        (("--interval", "60", *NIGHTLY), "--cron and --interval: give one of them"),
        ((), "when runs start is missing: give --cron, --interval, --on-new-traces or --on-drift"),
        ((*NIGHTLY, "--timezone", "Mars/Base"), "--timezone Mars/Base: no such time zone; give an IANA name"),
        ((*NIGHTLY, "--set", "schedule.timezone=../etc"), "schedule.timezone ../etc: no such time zone"),
        (("--interval", "60", "--timezone", "UTC"), "--timezone: it is the time zone of --cron, which is missing"),
        ((*NIGHTLY, "--port", "70000"), "--port 70000: give a port from 1 to 65535"),
        ((*NIGHTLY, "--set", "policy.base=no/such-base"), "policy.base: 'no/such-base' is neither a folder nor a model"),
        ((*NIGHTLY, "--set", "policy.base=base.gguf"), "policy.base: base.gguf: no such file"),
        ((*NIGHTLY, "--set", "ingest.paths=[]"), "ingest.paths: not set; it takes files, folders or globs of logs"),
        (("--on-new-traces", "/no/such/folder"), "--on-new-traces /no/such/folder: no such folder; make it"),
        (("--on-new-traces", "/tmp"), "--on-new-traces /tmp: no run would read it; add it to ingest.paths"),
        (("--on-new-traces", "/tmp", "--min-new", "0"), "--min-new 0: give 1 or more"),
        ((*NIGHTLY, "--min-new", "5"), "--min-new: it says how many records --on-new-traces waits for"),
        ((*NIGHTLY, "--set", "ingest.paths=[no-such-logs]"), "no-such-logs: no such trace file (ingest.paths)"),
    ],
)
def test_a_wrong_option_or_profile_is_refused(deploy, arguments, said):
    code, says = deploy(*arguments)
    assert code == 2
    assert says.startswith(said)


def test_a_taken_port_is_refused(deploy, taken):
    assert deploy(*NIGHTLY, "--port", taken) == (
        2,
        f"--port {taken}: another program listens there; give another port, or end that program",
    )
    assert deploy(*NIGHTLY, "--set", f"schedule.port={taken}")[1].startswith(f"schedule.port {taken}: another program")


def test_a_folder_that_cannot_be_written_to_is_refused(deploy, tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    code, said = deploy(*NIGHTLY)
    assert code == 1
    assert str(tmp_path / "runs") in said


def test_a_dead_server_is_named_without_its_password(deploy, monkeypatch):
    port = free_port()
    monkeypatch.setenv("PREFECT_API_URL", f"http://user:secret@127.0.0.1:{port}/api")
    code, said = deploy(*NIGHTLY)
    assert code == 1
    assert said.startswith(f"PREFECT_API_URL http://127.0.0.1:{port}/api: no Prefect server answers")
    assert "prefect server start" in said and "secret" not in said


@pytest.mark.parametrize("status, text", [(200, "<html>"), (404, ""), (503, "")])
def test_an_address_that_is_no_prefect_api_is_refused(deploy, monkeypatch, status, text):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.server_port}")
    code, said = deploy(*NIGHTLY)
    server.shutdown()
    server.server_close()
    assert (code, "this is no Prefect API" in said) == ((1, False) if status == 503 else (2, True)), said


def test_the_port_is_kept_from_start_to_start(tmp_path, taken):
    kept = free_port()
    (tmp_path / PORT_FILE).parent.mkdir()
    (tmp_path / PORT_FILE).write_text(f"{kept}\n")
    assert choose_port(tmp_path, None) == kept
    (tmp_path / PORT_FILE).write_text(f"{taken}\n")
    assert choose_port(tmp_path, None) != taken  # a schedule starts all the same
    with pytest.raises(ConfigError, match="another program listens there"):
        choose_port(tmp_path, taken)


@pytest.mark.parametrize(
    "paths, covered",
    [
        ("logs", True),
        (".", True),
        ("logs/*.jsonl", True),
        ("**/*.jsonl", True),
        ("*.jsonl", False),
        ("logs/one.jsonl", False),
        ("logs/inside", False),
    ],
)
def test_a_folder_that_no_run_would_read_is_no_trigger(profile, tmp_path, monkeypatch, paths, covered):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs" / "inside").mkdir(parents=True)
    (tmp_path / "logs" / "one.jsonl").touch()
    options = argparse.Namespace(on_new_traces="logs", min_new=None)
    with contextlib.nullcontext() if covered else pytest.raises(ConfigError, match="no run would read it"):
        check_triggers(options, load_config(str(profile), [f"ingest.paths=['{paths}']"]))
