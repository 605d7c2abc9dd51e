"""Whose fault a failed call is: what a class of a user's own sees, what it raises, and what the policy reads."""

import json
import random
from dataclasses import replace

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.core.errors import ConfigError, DataError, InfrastructureError
from tracewheel.core.kind_table import give
from tracewheel.core.tracebacks import cause_of
from tracewheel.core.types import Task
from tracewheel.curation.replay import play
from tracewheel.environments import ENVIRONMENTS, Observation, Refusal, ToolError, make_environment
from tracewheel.rollout.episode import EpisodeLimits, World
from tracewheel.rollout.rollout import RolloutPlan, rollout_metrics, run_episodes

OBJECT = {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}, "required": ["path"]}
TASK = Task("t", "none", "f", 1, "Look.", {}, {}, "none", "t")


class Desk:
    """Raises as tools do."""

    kind = f"{__name__}:Desk"
    system_prompt = ""

    def __init__(self):
        self.seen, self.names = [], ["read", "later"]

    def tools(self):
        return [{"type": "function", "function": {"name": name, "parameters": OBJECT}} for name in self.names[:1]]

    def task_from_log(self, prompt, logged):
        return TASK

    def reset(self, task):
        self.names = ["read", "later"]

    def step(self, tool, args):
        self.seen.append(tool)
        match args["path"]:
            case "/missing":
                with open("/there/is/no/such/file", encoding="utf-8"):
                    pass
            case "/key":
                return {}[args["path"]]
            case "/number":
                return json.loads("{no json")
            case "/tool":
                raise ToolError("the printer is out of paper")
            case "/bug":
                return None + 1
            case "/line":
                raise OSError("no server") from ConnectionRefusedError("port 1")
            case "/full":
                raise OSError(28, "No space left on device")
            case "/more":
                self.names = ["later", "read"]
            case "/extra":
                return self._read(**args)
        return Observation("text")

    def _read(self, path, lines=0):
        return Observation(f"{path} {lines}")

    def snapshot(self):
        return {}


class Lenient(Desk):
    kind = f"{__name__}:Lenient"
    exceptions = "observation"


class Strict(Desk):
    kind = f"{__name__}:Strict"
    exceptions = "failure"


class Misspelt(Desk):
    kind = f"{__name__}:Misspelt"
    exceptions = "observations"


class AskingOthers(Desk):
    """Its exception comes from Tracewheel's code, not from its author's."""

    kind = f"{__name__}:AskingOthers"

    def step(self, tool, args):
        from tracewheel.core.strict_json import parse_json

        return parse_json("{no json")


class Asynchronous(Desk):
    kind = f"{__name__}:Asynchronous"

    async def step(self, tool, args):
        return super().step(tool, args)


def opened(kind):
    environment = make_environment(give(kind.kind))
    environment.reset(TASK)
    return environment


def test_a_call_that_no_tool_takes_is_answered_before_the_class_sees_it():
    desk = opened(Desk)
    assert desk.step("write", {"path": "/a"}) == Refusal(
        "error: no tool named write", error=True, why="of a tool that is not offered"
    )
    against = {
        "error: read: 'path' is a required property": {},
        "error: read: path: 3 is not of type 'string'": {"path": 3},
        "error: read: lines: '3' is not of type 'integer'": {"path": "/a", "lines": "3"},
    }
    for text, args in against.items():
        answer = desk.step("read", args)
        assert (answer.text, answer.error, answer.done) == (text, True, False)
    assert desk.seen == []
    assert desk.step("read", {"path": "/a", "lines": None}).text == "text", "null is an optional argument left out"


@pytest.mark.parametrize("kind", [Desk, Asynchronous])
def test_what_tools_raise_is_their_answer_and_all_else_a_failure(kind):
    desk = opened(kind)
    answers = {
        "/missing": "error: FileNotFoundError: [Errno 2] No such file or directory: '/there/is/no/such/file'",
        "/key": "error: KeyError: '/key'",
        "/number": "error: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "/tool": "error: the printer is out of paper",
    }
    for path, text in answers.items():
        answer = desk.step("read", {"path": path})
        assert (answer.text, answer.error, answer.done) == (text, True, False)
        assert "tests/tracewheel/environments/test_own_calls.py:" in answer.why
    for path, error in {"/bug": TypeError, "/line": OSError, "/full": OSError}.items():
        with pytest.raises(error):
            desk.step("read", {"path": path})


def test_a_class_says_what_its_exceptions_mean():
    assert opened(Lenient).step("read", {"path": "/bug"}).text.startswith("error: TypeError: unsupported operand")
    with pytest.raises(OSError, match="no server"):  # a lost connection is nothing that a policy causes
        opened(Lenient).step("read", {"path": "/line"})
    with pytest.raises(KeyError):
        opened(Strict).step("read", {"path": "/key"})
    assert opened(Strict).step("read", {"path": "/tool"}).text == "error: the printer is out of paper"
    with pytest.raises(ConfigError, match="its `exceptions` is 'observations': one of observation, failure"):
        opened(Misspelt)


def test_an_exception_of_our_own_code_is_a_failure():
    with pytest.raises(ValueError, match="property name"):
        opened(AskingOthers).step("read", {"path": "/a"})


def test_an_argument_that_the_schema_does_not_name_is_the_policy_s_mistake_only_where_the_class_raises():
    desk = opened(Desk)
    assert desk.step("read", {"path": "/a", "encoding": "utf-8"}).text == "text"
    assert desk.step("read", {"path": "/extra", "encoding": "utf-8"}).text == "error: read: no argument named encoding"


def test_tools_that_an_environment_offers_later_are_offered():
    desk = opened(Desk)
    assert desk.step("later", {"path": "/a"}).error
    desk.step("read", {"path": "/more"})
    assert desk.step("later", {"path": "/a"}).text == "text"
    assert desk.step("read", {"path": "/a"}).text == "text", "it was offered as the episode began"
    desk.reset(TASK)
    assert desk.step("later", {"path": "/a"}).error


def replayed(said, tool="write", path="/a"):
    call = {"id": "a", "type": "function", "function": {"name": tool, "arguments": json.dumps({"path": path})}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": said},
    ]
    return play(messages, opened(Desk))[1]


def test_a_replay_takes_the_failure_that_the_log_has_in_other_words():
    assert replayed("Unknown tool: write") is None
    assert replayed("Error: there is no file /missing", "read", "/missing") is None
    assert replayed("written").replayed == "error: no tool named write"


@pytest.mark.parametrize(
    "kind",
    [kind for kind in ENVIRONMENTS if kind in ("workspace", "order_desk", "refund_desk", "math", "retrieval", "assistant")],
)
def test_environments_that_are_shipped_answer_mistakes_themselves(kind):
    """So no call of theirs is answered for them, and what they say is what their logs say."""
    environment = make_environment(kind)
    task = environment.make_tasks(12, 1)[0]
    environment.reset(task)
    assert "own_calls" not in environment.step.__code__.co_filename
    mistakes = [("fly", {})]
    for tool in environment.tools():
        name, properties = tool["function"]["name"], tool["function"]["parameters"]["properties"]
        if properties:
            mistakes += [(name, {}), (name, {key: [7] for key in properties}), (name, dict.fromkeys(properties))]
            mistakes += [(name, dict.fromkeys(properties, "a") | {"more": 1})]
    random.Random(3).shuffle(mistakes)
    for name, args in mistakes:
        answer = environment.step(name, args)
        assert type(answer) is Observation and answer.error and not answer.done, (name, args, answer)
    assert environment.step("fly", {}).text == "error: no tool named fly"


def test_a_failure_says_exception_call_and_line():
    world = World(Task("t", give(Desk.kind), "f", 1, "Look.", {}, {}, "none", "t"), EpisodeLimits())
    world.open()
    _, stop = world.call("read", {"path": "/bug"})
    place = "tests/tracewheel/environments/test_own_calls.py"
    assert (stop.reason, stop.fault) == ("infrastructure_failed", "environment")
    assert cause_of(stop.detail, stop.traceback).startswith(f"TypeError in read ({place}:")
    assert world.call("read", {"path": "/key"})[1] is None, "the tool's answer ends nothing"


class Down(ENVIRONMENTS["workspace"]):
    kind = f"{__name__}:Down"
    error = AttributeError("a bug")

    def reset(self, task):
        raise self.error


class Away(Down):
    kind = f"{__name__}:Away"
    error = InfrastructureError("no server")
    error.fault = "tool"


def test_too_many_failures_are_refused_and_a_few_are_said(scripted_engine, renderer, tasks):
    def played(*kinds):
        some = [replace(task, environment=give(kind)) for task, kind in zip(tasks, kinds, strict=False)]
        engine = scripted_engine(renderer, [["Nothing to do."]] * sum(kind == "workspace" for kind in kinds))
        return run_episodes(engine, renderer, RolloutConfig(max_tokens=4000, max_turn_tokens=100), RolloutPlan(some, 1, 2))

    found = rollout_metrics(played("workspace", "workspace", Down.kind))
    assert found["without_score"].startswith("1 of 3 episodes have no score, 1 of them by AttributeError in reset (tests/")
    assert "without_score" not in rollout_metrics(played("workspace"))
    with pytest.raises(DataError, match="2 of 3 episodes have no score, 2 of them by AttributeError in reset .*ToolError"):
        rollout_metrics(played("workspace", Down.kind, Down.kind))
    with pytest.raises(InfrastructureError, match="the fault of the tool"):
        rollout_metrics(played(Away.kind))
