"""Episodes of real programs: how each ends, what is kept of it, and that none harms another."""

import json
import os
import signal
import time

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.config.sections import RolloutSections
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.types import Task
from tracewheel.environments import Observation
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.rollout.harness.probe import probe
from tracewheel.rollout.harness.starting import Starter, public_task
from tracewheel.rollout.rollout import rollout_metrics

# A client of a few lines: it starts in a twentieth of the time of a vendor's.
CLIENT = """
import json, os, sys, urllib.error, urllib.request

def post(url, body, key=None):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + (key or os.environ["OPENAI_API_KEY"])}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)

def ask(messages, key=None, **more):
    body = {"model": "policy", "messages": messages, **more}
    return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, key)

def call(name, **arguments):
    return post(os.environ["TRACEWHEEL_TOOLS_URL"] + "/call/" + name, arguments)

task = json.load(sys.stdin)
"""


class Rewards(WorkspaceEnvironment):
    """Rewards each listing, and answers texts."""

    def step(self, tool, args):
        observation = super().step(tool, args)
        return Observation(observation.text, reward=0.25) if tool == "list_files" else observation

    def reply(self, text):
        return Observation(f"you said {text}", done=text == "bye")


class Breaks(WorkspaceEnvironment):
    def step(self, tool, args):
        raise TimeoutError("the file server is gone")


class NoContainer(WorkspaceEnvironment):
    def reset(self, task):
        raise ConnectionError("no container")


class Hangs(WorkspaceEnvironment):
    def step(self, tool, args):
        while True:
            time.sleep(0.01)


def of(task, environment):
    """The task in another environment."""
    return Task.from_record({**task.to_record(), "environment": f"{__name__}:{environment}"})


@pytest.fixture
def run(played, script, tasks):
    """Run a program, given by its text after the client's, once; returns the trajectory."""

    def one(text, task=None, caps=None, **harness):
        (found,) = played([task or tasks[0]], {"command": script(CLIENT + text), **harness}, **caps or {})
        return found

    return one


def test_a_program_that_ends_well(run, tasks):
    found = run(
        """
status, reply = ask(task["messages"], tools=task["tools"])
status, told = call("list_files", path="/inbox")
json.dump({"asked": status, "task": task}, open(os.environ["TRACEWHEEL_RESULT"], "w"))
print("my answer")
print("a note", file=sys.stderr)
"""
    )
    assert (found.stop_reason, found.fault, found.detail, len(found.turns)) == ("finished", "", "", 1)
    program = found.final_state["program"]
    assert (program["output"], program["exit_code"], program["result"]["asked"]) == ("my answer\n", 0, 200)
    assert found.final_state["files"] == tasks[0].initial_state["files"], "the snapshot of its environment is there, too"
    told = program["result"]["task"]
    assert set(told) == {"id", "prompt", "messages", "tools", "replies"} and told["prompt"] == tasks[0].prompt
    assert sum(found.action_mask) == len(found.token_ids) - found.turns[0]["start"]
    assert found.messages[-1]["role"] == "assistant"


BROKEN = {
    "exit code": ("ask(task['messages']); sys.exit('no such luck')", "harness_failed", "harness", "exit code 1: no such luck"),
    "crash": ("os.kill(os.getpid(), 11)", "harness_failed", "harness", "the program crashed with SIGSEGV"),
    "killed": ("os.kill(os.getpid(), 9)", "infrastructure_failed", "machine", "killed from outside with SIGKILL"),
    "never asks": ("print('hello')", "harness_failed", "harness", "never got an answer of the model"),
    "garbage": ("ask('garbage'); ask([]); ask([{'role': 'nobody'}])", "harness_failed", "harness", "never got an answer"),
    "foreign key": ("print(ask(task['messages'], 'tw-0-somebodys'))", "harness_failed", "harness", "never got an answer"),
    "hangs": ("import time; ask(task['messages']); time.sleep(60)", "harness_failed", "harness", "over 3 s (rollout.harness"),
    "prints": ("while True: print('x' * 1000)", "harness_failed", "harness", "over 3 s (rollout.harness.seconds)"),
    "cut off": ("ask(task['messages'])", "max_tokens", "model", ""),
    "too many turns": ("[ask(task['messages']) for _ in range(5)]", "max_turns", "model", "more than the limit"),
    "too long": (
        "ask([{'role': 'user', 'content': 'long ' * 900}])",
        "harness_failed",
        "harness",
        "first request was refused: the mess",
    ),
    "asks for ever": ("while True: ask('garbage')", "harness_failed", "harness", "over 50 requests"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_programs_that_go_wrong_are_records_that_say_so(run, name):
    text, reason, fault, detail = BROKEN[name]
    caps = {"too many turns": {"max_turns": 2}, "cut off": {"max_turn_tokens": 2}}.get(name, {})
    found = run(text, caps=caps, seconds=3 if "over 3 s" in detail else 60, max_requests=50)
    assert (found.stop_reason, found.fault) == (reason, fault), found.detail
    assert detail in found.detail
    assert len(found.final_state["program"]["output"]) < 66_000
    assert len(found.token_ids) == len(found.action_mask) == len(found.logprobs)


def test_a_program_that_shortens_its_history_may_go_on_after_a_limit(run):
    found = run("print(ask([{'role': 'user', 'content': 'long ' * 900}])[0], ask(task['messages'])[0])")
    assert (found.stop_reason, found.final_state["program"]["output"]) == ("finished", "400 200\n")


def test_rewards_of_calls_go_to_the_turn_sampled_last(run, tasks):
    text = "{}\ncall('list_files', path='/inbox')\n".format("ask(task['messages'], tools=task['tools'])")
    found = run(text * 2 + "call('list_files', path='/inbox')", of(tasks[0], "Rewards"))
    assert [turn.get("reward") for turn in found.turns] == [0.25, 0.5]


def test_an_environment_that_answers_texts_is_asked_with_reply(run, tasks):
    text = """
ask(task["messages"])
url = os.environ["TRACEWHEEL_TOOLS_URL"] + "/reply"
print(task["replies"], [post(url, {"text": said}) for said in ("hello", "bye", "again")], post(url, {})[0])
print(ask(task["messages"])[0])
"""
    found = run(text, of(tasks[0], "Rewards"))
    assert found.final_state["program"]["output"].splitlines() == [
        "True [(200, {'text': 'you said hello', 'error': False, 'done': False}), "
        "(200, {'text': 'you said bye', 'error': False, 'done': True}), "
        "(409, {'text': 'the episode has ended', 'error': True, 'done': True})] 400",
        "400",
    ], "after its end neither the environment nor the model answers"
    assert found.stop_reason == "finished" and len(found.turns) == 1


def test_what_follows_the_end_of_an_episode_does_not_count(run):
    found = run("ask(task['messages'])\ncall('finish')\nos.kill(os.getpid(), 11)")
    assert (found.stop_reason, found.fault, found.final_state["finished"]) == ("finished", "", True)


@pytest.mark.parametrize(
    ("environment", "detail", "state"),
    [
        ("Breaks", "TimeoutError: the file server is gone", True),
        ("NoContainer", "no container", True),
        ("Hangs", "0.5 s", False),
    ],
)
def test_an_environment_that_fails_is_no_fault_of_the_program(run, tasks, environment, detail, state):
    found = run("ask(task['messages'])\nprint(call('finish'))", of(tasks[0], environment), {"step_seconds": 0.5})
    assert found.stop_reason == "infrastructure_failed" and found.fault == "environment" and detail in found.detail
    assert bool(found.final_state) == state


def test_tasks_in_a_file_or_a_variable_and_without_an_environment(played, script, tasks):
    text = CLIENT.replace("json.load(sys.stdin)", "{}") + "ask({})\nprint(json.dumps([{}, sorted(os.environ)]))"
    for task_on, read in [
        ("file", "json.load(open(os.environ['TRACEWHEEL_TASK_FILE']))"),
        ("env", "json.loads(os.environ['TRACEWHEEL_TASK'])"),
    ]:
        command = script(text.replace("{}", read, 1).replace("{}", "task['messages']", 1).replace("{}", "task", 1))
        (found,) = played(tasks[:1], {"command": command, "task_on": task_on, "tools": "none"})
        assert set(found.final_state) == {"program"}, "no environment is made"
        told, names = json.loads(found.final_state["program"]["output"])
        assert told == public_task(tasks[0], None) and "goal" not in json.dumps(told)
        assert "TRACEWHEEL_TOOLS_URL" not in names


def test_the_environment_that_a_program_gets(tmp_path):
    from tracewheel.config import HarnessConfig

    given = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/me",
        "AWS_SECRET_ACCESS_KEY": "x",
        "MINE": "y",
        "OPENAI_API_KEY": "real",
    }
    starter = Starter(HarnessConfig(command=("sh",), env={"A": "1"}, pass_env=("MINE",)), given)
    assert set(starter.base) == {"PATH", "HOME", "A", "MINE", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "NO_PROXY", "no_proxy"}
    with pytest.raises(ConfigError, match=r"pass_env: NOT_THERE is not set"):
        Starter(HarnessConfig(command=("sh",), pass_env=("NOT_THERE",)), given)


def test_a_program_that_does_not_exist_stops_the_run(played, tasks):
    with pytest.raises(ConfigError, match=r"rollout.harness.command: there is no program 'my-agent'"):
        played(tasks[:1], {"command": ["my-agent"]})


def test_an_engine_that_fails_stops_the_run(engine, renderer, script, tasks):
    from tracewheel.config import RolloutConfig
    from tracewheel.rollout.rollout import RolloutPlan, run_episodes

    broken = engine()
    broken.step = lambda: 1 / 0
    config = RolloutConfig(harness={"command": script(CLIENT + "ask(task['messages'])")})
    with pytest.raises(InfrastructureError, match="the engine has ended: division by zero"):
        run_episodes(broken, renderer, config, RolloutPlan(tasks[:1], samples=1, seed=0))


MANY = """
import hashlib, time
number = int(hashlib.sha256(task["id"].encode() + os.environ["OPENAI_API_KEY"].split("-")[1].encode()).hexdigest(), 16) % 6
if number == 0:
    os.kill(os.getpid(), 9)
if number == 1:
    time.sleep(600)
if number == 2:
    sys.exit(0)
if number == 3:
    for _ in range(10000):
        ask("garbage")
if number == 4:
    for other in range(64):
        ask(task["messages"], key=f"tw-{other}-guess")
        post(os.environ["OPENAI_BASE_URL"].replace("/e/", "/e/1"), {})
messages = task["messages"]
for _ in range(3):
    status, reply = ask(messages, tools=task["tools"])
    said = reply["choices"][0]["message"]
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in said.get("tool_calls") or []]
    messages += [said, *(answers or [{"role": "user", "content": "go on"}])]
print(number, status)
"""


@pytest.mark.slow
def test_64_programs_at_once_of_which_most_are_bad(played, script, tasks):
    harness = {"command": script(CLIENT + MANY), "seconds": 60, "max_requests": 100}
    found = played(tasks, harness, samples=64 // len(tasks), max_tokens=2000)
    assert len(found) == 64
    kinds = {}
    for episode in found:
        kinds.setdefault((episode.stop_reason, episode.detail.partition(" (")[0].partition(";")[0]), []).append(episode)
        good = episode.stop_reason == "finished"
        assert good == (len(episode.turns) == 3) and good == (episode.fault == "")
    assert {reason for reason, _ in kinds} == {"finished", "infrastructure_failed", "harness_failed"}
    assert {detail for _, detail in kinds} == {
        "", "the program was killed from outside with SIGKILL", "over 60 s", "over 100 requests",
        "the program never got an answer of the model",
    }  # fmt: skip
    good = script(CLIENT + "number = 5\nmessages = " + MANY.partition("messages = ")[2], "good.py")
    alone = played(tasks, {"command": good, "concurrency": 1}, max_tokens=2000)
    by_id = {(one.task_id, one.sample): one for one in found}
    compared = [one for one in alone if by_id[one.task_id, one.sample].stop_reason == "finished"]
    assert compared
    for one in compared:
        assert one.token_ids == by_id[one.task_id, one.sample].token_ids, "whoever runs beside it"


def test_programs_are_ended_when_the_pool_is(engine, renderer, script, tasks, tmp_path):
    from tracewheel.config import RolloutConfig
    from tracewheel.rollout.episode import EpisodeSpec
    from tracewheel.rollout.harness.pool import HarnessPool

    place = tmp_path / "pid"
    command = script(CLIENT + f"import time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    with HarnessPool(engine(), renderer, RolloutConfig(harness={"command": command, "sandbox": "none"})) as pool:
        pool.begin(0, EpisodeSpec(tasks[0], 0, 1, 1.0))
        while not place.exists() or not place.read_text():
            assert not pool.step()
        pid = int(place.read_text())
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def test_weights_change_under_a_running_program(engine, renderer, script, tasks, base, tmp_path):
    from tracewheel.config import RolloutConfig
    from tracewheel.policy.adapters import PolicyRef
    from tracewheel.rollout.episode import EpisodeSpec
    from tracewheel.rollout.harness.pool import HarnessPool

    asked, updated = tmp_path / "asked", tmp_path / "updated"
    text = f"""
import time
ask(task["messages"])
open({str(asked)!r}, "w").close()
while not os.path.exists({str(updated)!r}):
    time.sleep(0.01)
ask(task["messages"])
"""
    config = RolloutConfig(harness={"command": script(CLIENT + text), "sandbox": "none"})  # it reads files outside
    with HarnessPool(engine(), renderer, config) as pool:
        pool.begin(0, EpisodeSpec(tasks[0], 0, 1, 1.0))
        while not asked.exists():
            assert not pool.step()
        pool.update_weights(PolicyRef(base, version=7))
        updated.touch()
        found = []
        while not found:
            found = pool.step()
        assert pool.policy_version == 7
    ((_, trajectory),) = found
    assert [turn["policy_version"] for turn in trajectory.turns] == [0, 7] and trajectory.policy_version == 0
    assert trajectory.forks, "the same question again is another row of the same tree"


def test_the_detail_is_its_last_lines_without_secrets_and_what_is_its_own(run):
    found = run(
        """
print("Traceback\\n  in work\\n\\x1b[31mfailed in", os.environ["TMPDIR"], file=sys.stderr)
sys.exit("key sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 5 + " of " + os.environ["OPENAI_API_KEY"])
"""
    )
    first, *middle, last = found.detail.splitlines()
    assert first == "exit code 1: Traceback" and middle == ["  in work", "failed in $TMPDIR"]
    assert "a1B2c3D4" not in last and last.endswith("of KEY")


def test_a_request_that_cannot_be_read_is_counted_by_its_field(run):
    found = run("ask('garbage'); ask(task['messages'])")
    assert found.requests["asked"] == 2 and found.requests["refused"] == found.requests["refused.messages"] == 1
    found = run("ask('garbage')")
    assert "Invalid type for 'messages'" in found.detail and found.fault == "harness"


def test_a_rollout_in_which_each_program_fails_stops_the_run(played, script, tasks):
    found = played(tasks[:2], {"command": script("import sys; sys.exit('no luck')")})
    with pytest.raises(ConfigError, match=r"2 of 2 episodes failed in the program .* exit code 1: no luck\n.*tracewheel check"):
        rollout_metrics(found)


def test_a_probe_says_what_a_program_asks_for(config, base, script, tasks):
    def sections(text):
        rollout = RolloutConfig(max_tokens=400, max_turn_tokens=48, harness={"command": script(CLIENT + text)})
        policy = config.policy.model_copy(update={"base": base})
        return RolloutSections.of(config.model_copy(update={"rollout": rollout, "policy": policy}))

    probed = probe(sections("ask(task['messages'], tools=task['tools'], top_k=5)"), tasks)
    assert (probed.episode.requests["asked"], probed.episode.requests["dropped.top_k"]) == (1, 1)
    assert probed.first == probed.largest == probed.episode.turns[0]["start"] and "list_files" in probed.tools
    assert "left out: top_k (1)" in probed.says()
    with pytest.raises(ConfigError, match=r"asks with \d+ tokens, and rollout.max_tokens is 400: set .* to 2048"):
        probe(sections("ask([{'role': 'user', 'content': 'a long text ' * 150}])"), tasks)
    with pytest.raises(ConfigError, match=r"(?s)never got an answer.*refused by the gateway, by field: messages \(1\)"):
        probe(sections("ask('garbage')"), tasks)
