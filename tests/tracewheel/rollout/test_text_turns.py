"""Text turns: an environment answers what the agent says, in rollouts, replays and probes."""

import dataclasses

import pytest

from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.core.files import read_records, write_records
from tracewheel.core.types import Task, Trace, Trajectory
from tracewheel.curation.probes import probe_task
from tracewheel.curation.replay import replay_trace
from tracewheel.engines.chat_reply import Reply, Usage
from tracewheel.environments import TEXT_TURN, Observation, Replier, make_environment
from tracewheel.environments.base import function_tool
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric, replay_turns
from tracewheel.teacher.attempt import EndpointEpisode, attempt_episode
from tracewheel.teacher.teach import verified

ROOMY = RolloutConfig(max_tokens=4000, max_turn_tokens=1000)


class Counter:
    """A user who names a number when asked, and goes once the agent says that it is done; the agent writes the number down."""

    kind = f"{__name__}:Counter"
    system_prompt = "You write down numbers."

    def task_from_log(self, prompt, logged):
        return make_task(logged["number"], prompt, self.kind)

    def tools(self):
        return [function_tool("write", "Write a number down.", {"number": {"type": "integer"}})]

    def reset(self, task):
        self.number, self.written, self.said = task.goal["number"], None, []

    def step(self, tool, args):
        if "number" not in [word for word, _ in self.said]:
            return Observation("error: nobody has told you", error=True)
        self.written = args["number"]
        return Observation("ok")

    def reply(self, text):
        self.said.append((text.split()[-1].strip("?."), self.written))
        match text:
            case "Which number?":
                return Observation(f"It is {self.number}.", reward=0.25)
            case "Done.":
                return Observation("Thanks.", done=True)
            case "Crash":
                raise ConnectionError("no line")
            case "Confuse":
                return Observation("the user gave the agent's answer", fault="user")
            case "Insult":
                return Observation("insults", fault="model")
        return Observation("I do not understand.")

    def snapshot(self):
        return {"written": self.written, "turns": len(self.said)}


class Moody(Counter):
    """Answers otherwise each time, and says so."""

    kind = f"{__name__}:Moody"
    repeatable = False
    asked = 0

    def reply(self, text):
        type(self).asked += 1
        self.said.append(("number", None))
        return Observation(f"Answer {self.asked}.", done=text == "Done.")

    def snapshot(self):
        return {"written": self.written}


class Wrote:
    kind = f"{__name__}:Wrote"

    def verify(self, task, final_state):
        return float(final_state["written"] == task.goal["number"]), {}


def make_task(number=7, prompt="Write it down.", kind=Counter.kind):
    return Task(f"t{number}", kind, "numbers", 1, prompt, {}, {"number": number}, Wrote.kind, f"t{number}")


@pytest.fixture
def play(scripted_engine, renderer):
    def run(script, config=ROOMY, kind=Counter.kind):
        engine = scripted_engine(renderer, [script])
        (found,) = run_episodes(engine, renderer, config, RolloutPlan([make_task(kind=kind)], samples=1, seed=0))
        return found

    return run


@pytest.fixture
def solved(play, call_text):
    return play(["Which number?", call_text("write", number=7), "Done."])


def test_an_environment_answers_turns_without_a_call(solved, renderer):
    assert isinstance(make_environment(Counter.kind), Replier) and not isinstance(make_environment("workspace"), Replier)
    said = [(message["role"], message["content"]) for message in solved.messages[1:]]
    assert said[1:3] == [("assistant", "Which number?"), ("user", "It is 7.")] and said[-1] == ("assistant", "Done.")
    assert solved.stop_reason == "finished" and solved.final_state == {"written": 7, "turns": 2}
    assert [turn.get("reward") for turn in solved.turns] == [0.25, None, None]
    told = renderer.observation_ids([{"role": "user", "content": "It is 7."}])
    start = solved.turns[0]["end"]
    assert solved.token_ids[start : start + len(told)] == told and not any(solved.action_mask[start : start + len(told)])
    score = Rubric(RubricConfig(), [make_task()]).score(make_task(), solved)
    assert score.breakdown["success"] == 1.0 and score.total == 1.25


def test_threads_and_limits_change_nothing(solved, play, call_text):
    config = ROOMY.model_copy(update={"tool_threads": 3, "step_seconds": 20.0})
    assert play(["Which number?", call_text("write", number=7), "Done."], config) == solved


def test_limits_and_stops(play):
    assert play(["Hello."], ROOMY.model_copy(update={"max_turns": 3})).stop_reason == "max_turns"
    crashed = play(["Crash"])
    assert (crashed.stop_reason, crashed.detail) == ("infrastructure_failed", "ConnectionError: no line")
    assert crashed.fault == "environment" and "ConnectionError: no line\nIn the call of reply (tests/" in crashed.traceback
    cut = play(["word " * 30], ROOMY.model_copy(update={"max_turn_tokens": 5}))
    assert cut.stop_reason == "max_tokens" and cut.final_state["turns"] == 0


def test_a_users_mistake_is_not_the_policys(play, tmp_path):
    """The episode ends unscored; a fault of the model is scored as it stands."""
    rubric = Rubric(RubricConfig(), [make_task()])
    confused = play(["Confuse"])
    assert (confused.stop_reason, confused.fault) == ("user_failed", "user")
    score = rubric.score(make_task(), confused)
    assert (score.status, score.total) == ("unscored", None)
    assert score.detail == "the fault of the user: the user gave the agent's answer"
    insulted = play(["Insult"])
    assert (insulted.stop_reason, insulted.fault) == ("finished", "model") and rubric.score(make_task(), insulted).total == 0.0
    write_records(tmp_path / "t.parquet", [confused, insulted])
    assert read_records(tmp_path / "t.parquet", Trajectory) == [confused, insulted]


def test_a_trajectory_is_replayed_with_its_text_turns(solved, play, call_text):
    states = replay_turns(make_task(), solved)
    assert [state["turns"] for state in states] == [0, 1, 1, 2] and states[-1] == solved.final_state
    moody = play(["Which number?", call_text("write", number=7), "Done."], kind=Moody.kind)
    asked = Moody.asked
    with pytest.raises(Exception, match="its replay ends in another state"):
        replay_turns(make_task(kind=Moody.kind), moody)  # nothing was written: who told the number is not asked again
    assert Moody.asked == asked == 2


def test_a_log_is_replayed_and_its_task_probed_with_its_text_turns(solved):
    """The log says what the user said; the environment only has to hear the agent."""
    messages = [dict(message) for message in solved.messages]
    messages[3]["content"] = "Seven, please."
    logged = {"kind": Counter.kind, "number": 7}
    trace = Trace("x", messages, [], logged, None, None, None, None, None, "f", 1)
    replay = replay_trace(trace, make_environment(Counter.kind))
    assert (replay.success, replay.ended, replay.difference) == (1.0, True, None)
    calls = [(TEXT_TURN, {"text": "Which number?"}), ("write", {"number": 7}), (TEXT_TURN, {"text": "Done."})]
    assert probe_task(make_task(), solution=calls).valid
    assert probe_task(make_task(), solution=calls[1:]).verdict == "known solution fails"
    from tracewheel.curation.openings import calls_of

    assert calls_of(messages, make_task(), make_environment(Counter.kind)) == calls
    silent = dataclasses.replace(make_task(), environment="workspace")
    assert calls_of(messages, silent, make_environment("workspace")) == calls[1:2]


def test_a_teacher_talks_too():
    said = iter(["Which number?", "Confuse"])

    def speak(messages, tools):
        return Reply({"role": "assistant", "content": next(said)}, "stop", Usage(known=False), None, "")

    attempt = attempt_episode(speak, EndpointEpisode(make_task(), 0, 0, 1.0, "key"), 5)
    assert attempt.messages[3] == {"role": "user", "content": "It is 7."}
    assert (attempt.stop_reason, attempt.fault) == ("user_failed", "user")
    assert verified(attempt, make_task()) == (None, "the user gave the agent's answer")
