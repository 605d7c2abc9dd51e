"""The folder of a program that has tools of its own: the task's files in it, and what is left of them."""

import pytest

from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Task
from tracewheel.rollout.harness.folders import lay_out, left_in

ASK = """
import json, os, pathlib, sys, urllib.request

told = json.load(sys.stdin)
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
body = json.dumps({"model": "policy", "messages": told["messages"]}).encode()
urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)).read()
"""
WORKS = """
print(sorted(str(path) for path in pathlib.Path().rglob("*")))
pathlib.Path("sub/a.txt").rename("b.txt")
"""


def task_with(files):
    return Task("t", "workspace", "f", 1, "Move it.", {"files": files}, {}, "workspace", "0")


@pytest.mark.parametrize("cwd", ["{workdir}", None])
def test_a_program_finds_the_tasks_files_and_its_own_are_the_final_state(played, script, cwd):
    asks = script(ASK + (WORKS if cwd else ""))
    caps = {"command": [asks[0], str(asks[1])], "cwd": cwd, "tools": "none"}
    (found,) = played([task_with({"sub/a.txt": "one\r\n"})], caps)
    assert (found.stop_reason, found.detail) == ("finished", "")
    assert found.final_state.get("files") == ({"b.txt": "one\r\n"} if cwd else None), "only a program that is told its folder"
    assert found.final_state["program"]["output"] == ("['sub', 'sub/a.txt']\n" if cwd else "")


@pytest.mark.parametrize("name", ["../a.txt", "/a.txt", "", "a\0b"])
def test_a_path_of_a_task_leads_out_of_no_folder(tmp_path, name):
    with pytest.raises(ConfigError, match="task t is no text at a path in a folder"):
        lay_out(task_with({name: "text"}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_not_read_of_a_folder_is_said_and_leaves_no_files(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    assert left_in(tmp_path) == {"files": {"a.txt": "one"}}
    (tmp_path / "link").symlink_to("/etc/hostname")
    state = left_in(tmp_path)
    assert state["files"] == {} and "link is a link, which is not followed" in state["files_problem"]
    (tmp_path / "link").unlink()
    (tmp_path / "large").write_bytes(bytes(300 << 10))
    assert "MB" in left_in(tmp_path)["files_problem"]
