"""Programs in boxes: what they cannot see, reach, use up or leave behind. Each is a real process in a real box."""

import socket
from pathlib import Path

import pytest

from tracewheel.config import HarnessConfig
from tracewheel.rollout.harness import box
from tracewheel.rollout.harness.box import box_of

CLIENT = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)


def ask(messages=task["messages"]):
    head = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    body = json.dumps({"model": "m", "messages": messages}).encode()
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    return json.load(urllib.request.urlopen(urllib.request.Request(url, body, head)))


def tried(act):
    try:
        return act()
    except BaseException as error:
        return type(error).__name__


def tell(value):
    json.dump(value, open(os.environ["TRACEWHEEL_RESULT"], "w"))


"""
boxed = pytest.mark.skipif(bool(box._lacks()), reason=f"needs bubblewrap: {box._lacks()}")


@pytest.fixture
def run(played, script, tasks):
    """Runs a program, given by its text after the client's; returns the trajectories."""

    def of(text, samples=1, **harness):
        settings = {"command": script(CLIENT + text), "tools": "none", "seconds": 20, "sandbox": "auto", **harness}
        return played([tasks[0]], settings, samples)

    return of


def told(episode):
    assert "result" in episode.final_state["program"], (episode.detail, episode.final_state)
    return episode.final_state["program"]["result"]


@boxed
def test_it_reaches_the_gateway_and_nothing_else(run, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    (tmp_path / "link").symlink_to(secret)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (episode,) = run(
            f"""
import socket
answer = ask()["choices"][0]["message"]["role"]
files = ["{secret}", "{tmp_path / "link"}", os.path.expanduser("~root/.bashrc"), "/etc/shadow", "/proc/1/root{secret}"]
connect = lambda *at: tried(lambda: socket.create_connection(at, 2).close())
tell({{
    "answer": answer,
    "read": [tried(lambda: open(name).read()) for name in files],
    "port": connect("127.0.0.1", {port}),
    "internet": connect("192.0.2.1", 80),
    "name": connect("example.org", 80),
    "write": [tried(lambda: open(name, "w")) for name in ("/usr/x", "/x", "/etc/passwd", __file__)],
    "uid": os.getuid(),
    "kill": tried(lambda: os.kill(os.getppid() + 100000, 9)),
    "sees": len([name for name in os.listdir("/proc") if name.isdigit()]),
}})
""",
        )
    found = told(episode)
    assert (episode.stop_reason, found["answer"], found["uid"]) == ("finished", "assistant", 1000)
    assert all(text.endswith("Error") for text in found["read"]), found
    assert found["port"] == "ConnectionRefusedError" and {found["internet"], found["name"]} <= {"OSError", "gaierror"}
    assert all(text in ("OSError", "PermissionError") for text in found["write"]) and found["sees"] <= 4


@boxed
def test_nothing_leaks_into_the_next_episode(run, tmp_path):
    text = """
import pathlib, tempfile
folders = ["/tmp", "/dev/shm", os.getcwd(), os.environ["TMPDIR"], os.environ["HOME"]]
places = [f"{folder}/mark" for folder in folders]
ask()
seen = [name for name in places if os.path.exists(name)]
wrote = sum(tried(lambda: pathlib.Path(name).write_text("x")) == 1 for name in places)
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(600)
tell({"seen": seen, "wrote": wrote})
"""
    found = [told(episode) for episode in run(text, samples=3, concurrency=1)]
    assert found == [{"seen": [], "wrote": 5}] * 3
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(str(tmp_path).encode() in line for line in lines), "what it left running ends with its box"


@boxed
@pytest.mark.parametrize(
    ("text", "settings", "detail"),
    [
        ("ask(); held = bytearray(300 << 20); import time; time.sleep(15)", {"memory_mb": 128}, "over 128 MB of memory"),
        ("ask(); import time\nwhile True: time.sleep(1)", {"seconds": 3}, "over 3 s (rollout.harness.seconds)"),
        (
            "ask(); from threading import Event, Thread\nfor _ in range(2000): Thread(target=Event().wait).start()",
            {},
            "threads",
        ),
    ],
    ids=["memory", "time", "processes"],
)
def test_it_is_ended_at_its_limits(run, text, settings, detail):
    (episode,) = run(text, **settings)
    assert (episode.stop_reason, episode.fault) == ("harness_failed", "harness")
    assert detail in episode.detail or (detail == "threads" and "can't start new thread" in episode.detail)


@boxed
def test_a_program_that_ends_itself_is_no_fault_of_the_machine(run):
    """Outside a box nobody can tell; in one, only what hits the box itself comes from outside."""
    (episode,) = run("ask(); os.kill(os.getpid(), 9)")
    assert (episode.fault, episode.detail) == ("harness", "exit code 137: ended by SIGKILL")


@boxed
def test_a_link_as_its_result_is_not_followed(run, tmp_path):
    (tmp_path / "secret.txt").write_text('"a secret"')
    (episode,) = run(f"ask(); os.symlink({str(tmp_path / 'secret.txt')!r}, os.environ['TRACEWHEEL_RESULT'])")
    assert episode.stop_reason == "finished" and "result" not in episode.final_state["program"]


def test_a_machine_without_boxes_says_so_once(tmp_path, monkeypatch, caplog):
    box._lacks.cache_clear()
    box._say_once.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    config = HarnessConfig(command=("/usr/bin/true",))
    try:
        assert [box_of(config, ["/usr/bin/true"], None, {}, tmp_path) for _ in range(2)] == [None, None]
    finally:
        box._lacks.cache_clear()
    assert len(caplog.messages) == 1 and "bwrap is not on the PATH: install bubblewrap" in caplog.messages[0]
    assert box_of(config.model_copy(update={"sandbox": "none"}), ["/usr/bin/true"], None, {}, tmp_path) is None


def test_what_a_program_is_made_of(tmp_path):
    """A link on the PATH, a script of a package, its interpreter found by `env`, and a virtual environment."""
    package = tmp_path / "lib" / "node_modules" / "agent"
    runtime = tmp_path / "node" / "bin"
    for folder in (package, runtime, tmp_path / "bin", tmp_path / "node" / "lib", tmp_path / "venv" / "bin"):
        folder.mkdir(parents=True)
    (package / "cli.js").write_text("#!/usr/bin/env runtime\n")
    (tmp_path / "bin" / "agent").symlink_to("../lib/node_modules/agent/cli.js")
    (runtime / "runtime").write_bytes(b"\x7fELF")
    (runtime / "runtime").chmod(0o755)
    found = set(box._roots(str(tmp_path / "bin" / "agent"), str(runtime)))
    assert {str(tmp_path / name) for name in ("bin/agent", "lib/node_modules", "node/bin", "node/lib")} <= found
    assert str(tmp_path) not in found and str(tmp_path / "node") not in found
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {runtime}\nversion = 3.11\n")
    (tmp_path / "venv" / "bin" / "tool").write_text(f"#!{tmp_path}/venv/bin/python -I\n")
    found = set(box._roots(str(tmp_path / "venv" / "bin" / "tool"), ""))
    assert {str(tmp_path / "venv"), str(runtime)} <= found
