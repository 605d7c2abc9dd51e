"""Shared by the flow tests: a very short profile and one finished run of it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

import psutil
import pytest
import yaml
from filelock import FileLock

from tracewheel.core.processes import free_port
from tracewheel.core.store import Store

ROOT = Path(__file__).parents[2]
SERVER_PATIENCE = 400
MANY_TASKS = {"train_tasks": 100, "validation_tasks": 4, "held_out_tasks": 4, "harder_tasks": 4, "min_attempts": 1}
# For runs in which nothing is asserted of the policies that are evaluated for comparison alone: they are half of a short run.
WITHOUT_COMPARISONS = {"warm_starts": "one", "policies": "gate", "aa": False}


@pytest.fixture(scope="session")
def profile(base, tmp_path_factory):
    """The shipped short profile, made shorter, with paths that hold from anywhere."""
    values = yaml.safe_load((ROOT / "configs" / "tiny-short.yaml").read_text())
    values["ingest"] = {"paths": [str(ROOT / "data" / "traces" / "workspace.jsonl")]}
    values["policy"] = {"base": base}
    values["curation"] = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 12, "harder_tasks": 4}
    values["warm_start"] |= {"replay": {"path": f"{base}/replay.parquet", "share": 0.1}}
    values["learner"] = values.get("learner", {}) | {"replay_path": f"{base}/replay.parquet", "replay_rows": 4}
    values["gate"] = {"min_pairs": 5}
    path = tmp_path_factory.mktemp("profile") / "short.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="session")
def environment():
    """The environment of a user who has set nothing for Prefect."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def command(environment):
    """Runs `tracewheel` to its end in a separate process."""

    def run(*arguments, cwd=ROOT):
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *map(str, arguments)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )

    return run


@pytest.fixture
def run(capsys):
    """Runs a command in this process: exit code, standard output, standard error."""

    def call(*arguments):
        from flows.cli import main

        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def run_on_prefect(prefect_harness, run, monkeypatch):
    """Runs a command in this process, on the tests' Prefect server instead of one of its own."""
    from prefect.settings import PREFECT_API_URL

    monkeypatch.setenv("PREFECT_API_URL", PREFECT_API_URL.value())
    return run


@pytest.fixture
def spawn(environment):
    """Starts `tracewheel` in a separate process; the end of the test kills it if it still runs."""
    started = []

    def start(*arguments, log, cwd=ROOT):
        with open(log, "w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *map(str, arguments)],
                cwd=cwd,
                env=environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        started.append(psutil.Process(process.pid))
        return process

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


@pytest.fixture(scope="session")
def timed(profile, command, prefect_database, tmp_path_factory):
    """A complete run by the command line: its folder, the ended process, the output of `--json`, and its seconds.

    Of several test processes one makes it, which takes a minute of CPU; the others copy it as it was then.
    """
    folder = tmp_path_factory.mktemp("finished")
    prefect_database(folder / ".prefect" / "prefect.db")

    def make():
        started = time.monotonic()
        done = command("retrain", profile, "--run-dir", folder, "--json")
        assert done.returncode in (0, 3), done.stderr
        return done, time.monotonic() - started

    if "PYTEST_XDIST_WORKER" in os.environ:
        done, seconds = made_once(make, folder, tmp_path_factory.getbasetemp())
    else:
        done, seconds = make()
    return folder, done, json.loads(done.stdout), seconds


def made_once(make, folder, own):
    """What the first process made, in a folder below its `own`, with the paths of this process in place of its own."""
    original, answer = own.parent / "finished-by-one", own.parent / "finished-by-one.json"
    with FileLock(own.parent / "finished-by-one.lock"):
        if not answer.exists():
            done, seconds = make()
            shutil.copytree(folder, original)  # the tests of this process go on in the folder
            answer.write_text(json.dumps([str(own), done.args, done.returncode, done.stdout, done.stderr, seconds]))
            return done, seconds
    maker, *ended, seconds = json.loads(answer.read_text())
    # Paths are of one length (gw0, gw1), so databases stay whole; Prefect's write-ahead log has checksums and stays as it is.
    assert len(maker) == len(str(own)), f"{maker} and {own}"
    shutil.copytree(original, folder, dirs_exist_ok=True)
    for path in folder.rglob("*"):
        if path.is_file() and ".prefect" not in path.parts and maker.encode() in (data := path.read_bytes()):
            path.write_bytes(data.replace(maker.encode(), str(own).encode()))
    arguments, code, out, err = json.loads(json.dumps(ended).replace(maker, str(own)))
    return subprocess.CompletedProcess(arguments, code, out, err), seconds


@pytest.fixture(scope="session")
def finished(timed):
    """A complete run by the command line: its folder, the ended process, and the output of `--json`."""
    return timed[:3]


@pytest.fixture(scope="session")
def entries():
    """The digests of all complete entries of a run folder, checked against their bytes."""

    def read(folder):
        store = Store(folder / "store")
        names = [path.name for path in store.root.iterdir() if path.is_dir() and not path.name.startswith(".")]
        found = {name: store.find(*name.rsplit("-", 1)) for name in names}
        return {name: entry and entry.digest for name, entry in found.items()}

    return read


@pytest.fixture
def work(profile, tmp_path):
    """A work folder: `write` writes the first lines of the logs, `complete` ends a run on them without training."""
    import pandas as pd

    from flows.opening import earlier_curation, starting_facts
    from flows.retrain import retrain
    from flows.setup import resolve_config
    from tasks.engine.reading import begin_run
    from tasks.records.decisions import JOURNAL_FILE, decide
    from tasks.records.evidence import remember
    from tasks.records.split_chain import earlier_splits, remember_splits
    from tasks.stages.curate import curate_tasks
    from tasks.stages.ingest import ingest_traces

    values = yaml.safe_load(profile.read_text())
    with open(values["ingest"]["paths"][0], "rb") as stream:
        logs = stream.readlines()
    (tmp_path / "logged").mkdir()
    values["ingest"], values["curation"] = {"paths": [str(tmp_path / "logged")]}, MANY_TASKS
    values["name"] = f"work-{tmp_path.name}"
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(values))

    class Work:
        name = values["name"]
        profile, folder, log = str(tmp_path / "profile.yaml"), tmp_path / "run", tmp_path / "logged" / "log.jsonl"

        def write(self, lines):
            self.log.write_bytes(b"".join(logs[:lines]))

        def run(self, *overrides):
            return begin_run(resolve_config(self.profile, list(overrides), str(self.folder)))

        def curated(self, run):
            traces = ingest_traces(run, snapshot=run.snapshot)
            start = starting_facts(run, traces)
            splits, lost = earlier_splits(run, start)
            earlier = earlier_curation(run, start)
            return traces, start, curate_tasks(run, traces=traces, earlier=earlier, splits=splits, splits_lost=lost)

        def solved_and_failed(self, lines):
            """Log lines of attempts by how they end when they are replayed."""
            self.write(lines)
            run = self.run()
            with run.hold():
                _, _, curated = self.curated(run)
            success = pd.read_parquet(curated.path / "outcomes.parquet").set_index("trace_id")["success"]
            known = [(success.get(line[7:24].decode(errors="replace")), line) for line in logs[:lines]]
            return ([line for outcome, line in known if outcome == value] for value in (1.0, 0.0))

        def complete(self, lines=None):
            if lines:
                self.write(lines)
            run = self.run()
            with run.hold():
                return run, self.finish(run)

        def finish(self, run):
            traces, start, curated = self.curated(run)
            remember(run, traces, curated, start["evidence"])
            remember_splits(run, traces, curated, start["splits"])
            run.record.write("summary.json", {"gate": {"verdict": "refused"}})
            return curated

        def decide(self, *overrides, asked=True):
            run = self.run(*overrides)
            with run.hold():
                _, start, curated = self.curated(run)
                return run, curated, decide(run, curated, start, asked=asked)

        def tick(self, *overrides):
            return retrain(self.profile, list(overrides), str(self.folder), scheduled=True, return_state=True)

        def journal(self):
            return [json.loads(line) for line in (self.folder / JOURNAL_FILE).read_text().splitlines()]

    return Work()


class PrefectServer:
    """A real `prefect server start`."""

    def __init__(self, home, environment):
        self.url = f"http://127.0.0.1:{(port := free_port())}/api"
        self.environment = environment | {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        self.log = home / "server.log"
        home.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(command, env=self.environment, stdout=stream, stderr=subprocess.STDOUT)
        self.until(lambda: self.answers(), "the server to come up")

    def answers(self):
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200
        except OSError:
            return False

    def ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/{path}", data=data, method=method, headers={"Content-Type": "application/json"}
        )
        for tries_left in (5, 4, 3, 2, 1, 0):
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:
                    text = reply.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                if error.code != 503 or not tries_left:  # its SQLite database is locked on a busy machine
                    raise
                time.sleep(1)
        return None

    def runs(self, name=None):
        query = {"sort": "EXPECTED_START_TIME_ASC"} | ({"deployments": {"name": {"any_": [name]}}} if name else {})
        return self.ask("flow_runs/filter", query)

    def deployment(self, name):
        return self.ask(f"deployments/name/retrain/{name}")

    def start_run(self, name, **body):
        return self.ask(f"deployments/{self.deployment(name)['id']}/create_flow_run", body)

    def working(self, run):
        """When a run began to work and when it ended; while it waited it did not work."""
        times = [
            (state["name"], datetime.fromisoformat(state["timestamp"]))
            for state in self.ask(f"flow_run_states/?flow_run_id={run['id']}")
        ]
        began = max(when for name, when in times if name == "Running")
        return began, times[-1][1], [name for name, _ in times]

    def until(self, look, what):
        deadline = time.monotonic() + SERVER_PATIENCE
        while time.monotonic() < deadline:
            if found := look():
                return found
            time.sleep(0.5)
        raise AssertionError(f"waited in vain for {what}\n{self.log.read_text()[-3000:]}")

    def close(self):
        for process in [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]:
            process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def start_server(environment, tmp_path_factory):
    """Starts a Prefect server with more settings in its environment."""
    started = []

    def start(**settings):
        started.append(PrefectServer(tmp_path_factory.mktemp("prefect"), environment | settings))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def server(start_server):
    """One `prefect server start` for the slow tests; each has deployments of its own names."""
    return start_server()


@pytest.fixture
def deploy(server, tmp_path):
    """Starts `tracewheel deploy` on the server, and waits until it serves: the process, and what it says."""
    started = []

    def start(profile, *arguments):
        log = tmp_path / f"deploy-{len(started)}.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", "deploy", str(profile), *map(str, arguments)],
                cwd=ROOT,
                env=server.environment | {"PREFECT_API_URL": server.url},
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        started.append(psutil.Process(process.pid))
        server.until(lambda: "serving retrain/" in log.read_text() or process.poll() is not None, log)
        assert process.poll() is None, log.read_text()
        return process, log

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in [*process.children(recursive=True), process]:
                child.kill()


@pytest.fixture(scope="module")
def made(profile, tmp_path_factory):
    """Ingested and curated logs of the profile."""
    from flows.cli import main

    folder = tmp_path_factory.mktemp("made")
    assert main(["ingest", str(profile), "--out", str(folder / "ingested")]) == 0
    assert main(["curate", str(profile), "--traces", str(folder / "ingested"), "--out", str(folder / "curated")]) == 0
    return folder / "ingested", folder / "curated"
