"""Verifiers that see the episode: of rollouts, logs and teachers' attempts; and what becomes of their verdicts."""

import dataclasses
import json
from typing import ClassVar

import pandas as pd
import pytest

from tracewheel.config import EnvironmentConfig, PolicyConfig, RolloutConfig, RubricConfig, ScoreSections
from tracewheel.core.files import read_records, write_records
from tracewheel.core.types import Task, Trace, Trajectory
from tracewheel.curation.openings import calls_of
from tracewheel.curation.probes import probe_task
from tracewheel.curation.replay import no_op_problem, replay_trace
from tracewheel.engines.chat_reply import Reply, Usage
from tracewheel.environments import TEXT_TURN, Observation, make_environment
from tracewheel.environments.base import function_tool
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric
from tracewheel.scoring.score import read_scores, score
from tracewheel.scoring.verifiers import EpisodeVerifier, Verdict, episode_of, make_verifier
from tracewheel.teacher.attempt import EndpointEpisode, attempt_episode
from tracewheel.teacher.teach import verified

ROOMY = RolloutConfig(max_tokens=4000, max_turn_tokens=1000)


class Lookup:
    """A table of numbers; what the agent found out it says, and no state holds that."""

    kind = f"{__name__}:Lookup"
    system_prompt = "You look numbers up."

    def task_from_log(self, prompt, logged):
        return sum_task(self.kind)

    def tools(self):
        return [function_tool("look", "Look a number up.", {"key": {"type": "string"}})]

    def reset(self, task):
        self.table = task.initial_state

    def step(self, tool, args):
        if args.get("key") not in self.table:
            return Observation("not in the table", error=True)
        return Observation(str(self.table[args["key"]]))

    def snapshot(self):
        return {}


class Said:
    """The answer is the last word of what was said, and it must have been looked up without a wrong call."""

    kind = f"{__name__}:Said"
    seen: ClassVar[list] = []

    def verify_episode(self, task, episode):
        type(self).seen.append(episode)
        if "give up" in episode.final_text:
            raise LookupError("nothing to judge")
        answer = (episode.final_text.split() or [""])[-1].rstrip(".")
        right = answer == str(task.goal["sum"])
        parts = {"right": right, "clean": not any(call.error for call in episode.calls)}
        episode.messages[0]["content"] = "overwritten"  # it has a copy of its own
        return Verdict(float(right), parts, answer, f"{answer} after {len(episode.calls)} calls")


def sum_task(kind=Lookup.kind, verifier=Said.kind):
    return Task("s", kind, "sums", 1, "What is a + b?", {"a": 2, "b": 3}, {"sum": 5}, verifier, "s")


@pytest.fixture
def play(scripted_engine, renderer):
    def run(*script, config=ROOMY):
        engine = scripted_engine(renderer, [list(script)])
        return run_episodes(engine, renderer, config, RolloutPlan([sum_task()], samples=1, seed=0))[0]

    return run


@pytest.fixture
def solved(play, call_text):
    return play(call_text("look", key="a"), call_text("look", key="c"), call_text("look", key="b"), "It is 5.")


def test_an_episode_holds_what_was_said_done_and_counted(solved, play, call_text):
    episode = episode_of(solved)
    found = [(call.name, call.arguments, call.result, call.error, call.turn) for call in episode.calls]
    assert found == [
        ("look", {"key": "a"}, "2", False, 0),
        ("look", {"key": "c"}, "not in the table", True, 1),
        ("look", {"key": "b"}, "3", False, 2),
    ]
    assert (episode.final_text, episode.stop_reason, episode.turns, episode.malformed) == ("It is 5.", "no_tool_call", 4, 0)
    assert episode.tokens == sum(solved.action_mask) and episode.start == 2 and episode.messages == tuple(solved.messages)
    both = play(f"{call_text('look', key='a')}\n<tool_call>\n{{oops\n</tool_call>", "Sorry.")
    good, bad = episode_of(both).calls
    assert (good.name, good.result, good.malformed) == ("look", "2", False)
    assert bad.malformed and bad.error and bad.result.startswith("error: malformed call")
    with pytest.raises(dataclasses.FrozenInstanceError):
        episode.final_text = "It is 6."


def test_a_stored_trajectory_gives_the_same_episode_and_score(solved, play, tmp_path):
    gave_up, wrong = play("I give up."), play("It is 6.")
    write_records(tmp_path / "trajectories.parquet", [solved, gave_up, wrong])
    config = ScoreSections(rubric=RubricConfig(), policy=PolicyConfig(), environment=EnvironmentConfig())
    metrics = score(config, [sum_task()], tmp_path / "trajectories.parquet", tmp_path)
    scores = read_scores(tmp_path / "scores.parquet")
    assert [item.total for item in scores] == [1.0, None, 0.0] and metrics["unscored"] == 1
    assert (scores[0].answer, scores[0].explanation) == ("5", "5 after 3 calls")
    assert scores[0].breakdown == {Said.kind: 1.0, f"{Said.kind}.right": 1.0, f"{Said.kind}.clean": 0.0, "success": 1.0}
    said = f"verifier '{Said.kind}': verify_episode raises LookupError: nothing to judge (test_episode.py, line "
    assert scores[1].detail.startswith(said) and scores[1].answer == ""
    stored = read_records(tmp_path / "trajectories.parquet", Trajectory)[0]
    assert episode_of(stored) == episode_of(solved) and solved.messages[0]["content"] == Lookup.system_prompt
    again = Rubric(RubricConfig(), [sum_task()]).score(sum_task(), stored)
    assert again == scores[0]


def test_scores_without_answers_have_no_such_columns(solved, tmp_path):
    write_records(tmp_path / "trajectories.parquet", [solved])
    task = dataclasses.replace(sum_task(), verifier="workspace")
    score(
        ScoreSections(rubric=RubricConfig(), policy=PolicyConfig(), environment=EnvironmentConfig()),
        [task],
        tmp_path / "trajectories.parquet",
        tmp_path,
    )
    assert not {"answer", "explanation"} & set(pd.read_parquet(tmp_path / "scores.parquet").columns)


def test_several_verifiers_explain_under_their_names(solved):
    class Other(Said):
        def verify_episode(self, task, episode):
            return Verdict(0.5, explanation="so so")

    class Tuple(Said):
        def verify_episode(self, task, episode):
            return 1.0, {}

    rubric = Rubric(RubricConfig(verifiers=[{"kind": "task"}, {"kind": Said.kind}]), [sum_task()])
    assert rubric.score(sum_task(), solved).explanation == "\n".join([f"{Said.kind}: 5 after 3 calls"] * 2)
    rubric._verifiers[Said.kind] = Tuple()
    assert "verify_episode and verify_group are to return a Verdict, this is a tuple" in rubric.score(sum_task(), solved).detail


def test_turn_rewards_need_progress(solved):
    assert isinstance(make_verifier(Said.kind), EpisodeVerifier)
    scored = Rubric(RubricConfig(turn_rewards=True), [sum_task()]).score(sum_task(), solved)
    assert scored.total == 1.0 and "to judge a turn it needs progress(task, state)" in scored.detail


def test_logs_probes_and_teachers_are_judged_by_the_episode_too(solved):
    trace = Trace("x", solved.messages, [], {"kind": Lookup.kind}, None, None, None, None, None, "f", 1)
    environment = make_environment(Lookup.kind)
    assert replay_trace(trace, environment).success == 1.0
    assert (Said.seen[-1].stop_reason, Said.seen[-1].turns, len(Said.seen[-1].calls)) == ("no_tool_call", 4, 3)
    assert no_op_problem(sum_task(), environment) == ""
    assert (Said.seen[-1].turns, Said.seen[-1].final_text, len(Said.seen[-1].messages)) == (0, "", 2)
    calls = calls_of(solved.messages, sum_task(), environment)
    assert calls[-1] == (TEXT_TURN, {"text": "It is 5."})
    assert probe_task(sum_task(), solution=calls).valid and probe_task(sum_task(), solution=calls[:-1]).verdict
    plain = dataclasses.replace(sum_task(), verifier="workspace")
    assert calls_of(solved.messages, plain, environment) == calls[:-1]
    assert json.loads(json.dumps(calls))[-1][1] == {"text": "It is 5."}

    def speak(messages, tools):
        return Reply({"role": "assistant", "content": "It is 5."}, "stop", Usage(9, 0, 4), None, "")

    attempt = attempt_episode(speak, EndpointEpisode(sum_task(), 0, 0, 1.0, "key"), 5)
    assert verified(attempt, sum_task()) == (1.0, "") and Said.seen[-1].tokens == 4
