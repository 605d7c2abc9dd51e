"""A prompt around an environment: what it changes, and that it is in every key."""

import pytest

from plugins.prompts.tests.conftest import profile_of
from tasks.engine.keys import stage_keys
from tracewheel import ConfigError, Replier, Restorable, TaskMaker, kind_text, load_config, make_environment
from tracewheel.config import RetrainConfig
from tracewheel.core.kind_table import give
from tracewheel.environments import declared_verifiers, most_episodes, served_prompt, takes_argument, wanted_threads
from tracewheel.rollout.training_tasks import training_world
from tracewheel.scoring.world_code import world_code
from tracewheel_prompts.players import prompted, start_of
from tracewheel_prompts.prompt import Prompt, called, shown_episode

PROMPT = Prompt(system="Move every match.", tools={"finish": "Ends it."}, demonstrations=("Request: a", "Request: b"))


def kind_of(prompt, kind="workspace", **args):
    section = prompt.environment(kind, args)
    return give(kind_text(section["kind"], section["args"]))


def test_the_digest_changes_with_every_part():
    others = [
        Prompt(system="Move every match!", tools=PROMPT.tools, demonstrations=PROMPT.demonstrations),
        Prompt(system=PROMPT.system, tools={"finish": "Ends."}, demonstrations=PROMPT.demonstrations),
        Prompt(system=PROMPT.system, tools=PROMPT.tools, demonstrations=("Request: b", "Request: a")),
    ]
    assert len({PROMPT.digest, *(other.digest for other in others)}) == 4
    assert Prompt.model_validate(PROMPT.model_dump(mode="json")).digest == PROMPT.digest


def test_only_words_change():
    inner, world = make_environment("workspace"), make_environment(kind_of(PROMPT))
    assert world.verifiers == inner.verifiers == ("workspace",)  # or curation refuses its tasks
    assert world.kind == "workspace" and world.system_prompt.startswith("Move every match.\n\nRequests that were handled well:")
    described = {tool["function"]["name"]: tool["function"] for tool in world.tools()}
    for tool in inner.tools():
        name = tool["function"]["name"]
        wanted = "Ends it." if name == "finish" else tool["function"]["description"]
        assert described[name] == {**tool["function"], "description": wanted}
    (task,), (plain,) = world.make_tasks(1, 3), inner.make_tasks(1, 3)
    assert (task.fingerprint, task.id) == (plain.fingerprint, plain.id) and task.environment == kind_of(PROMPT)
    for each, one in ((world, task), (inner, plain)):
        each.reset(one)
        for name, args in each.solution(one):
            each.step(name, args)
    assert world.snapshot() == inner.snapshot()
    assert isinstance(world, TaskMaker) and isinstance(world, Restorable) and not isinstance(world, Replier)


def test_what_the_core_asks_of_a_class_is_answered_by_the_environment_within():
    kind = kind_of(PROMPT)
    assert (wanted_threads(kind, 9), most_episodes(kind)) == (0, None)
    assert declared_verifiers(kind) == ("workspace",)
    assert takes_argument(kind, "noise_seed") and not takes_argument(kind, "prompts")
    assert {"tracewheel_prompts.environment", "tracewheel.environments.workspace.environment"} <= set(world_code(kind).modules)


def test_exploration_reaches_the_environment_within(config):
    rollout = config.rollout.model_copy(
        update={"exploration": type(config.rollout.exploration)(environment_args={"lost_moves": 0.5})}
    )
    world = make_environment(training_world(rollout.exploration, kind_of(PROMPT), seed=7))
    assert (world.within._lost_moves, world.within._noise_seed) == (0.5, 7)
    with pytest.raises(ConfigError, match="no such argument"):
        make_environment(kind_text("prompted", {"environment": {"kind": "workspace"}, "lost_moved": 0.5}))


@pytest.mark.parametrize("kind", ["recorded:x", "several", "prompted"])
def test_some_kinds_take_no_prompt(kind):
    with pytest.raises(ConfigError, match="takes no prompt"):
        make_environment(kind_of(PROMPT, kind))


def test_a_change_of_prompt_voids_what_was_learnt_under_another(logs, config):
    one = prompted(profile_of(logs, policy={"base": config.policy.base}), PROMPT)
    other = prompted(one, Prompt(system="Move every match"))
    before, after = stage_keys(one), stage_keys(other)
    assert before == stage_keys(prompted(other, PROMPT))
    assert {stage for stage in before if before[stage] != after[stage]} >= {"curate", "warm_start", "improve", "evaluate"}
    assert before["ingest"] == after["ingest"]
    assert start_of(other) == Prompt(system="Move every match") and other.environment.args["environment"]["kind"] == "workspace"


def test_the_written_profile_is_the_profile(logs, tmp_path):
    import yaml

    config = prompted(profile_of(logs), PROMPT)
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True), allow_unicode=True))
    assert load_config(tmp_path / "p.yaml") == RetrainConfig.model_validate(config.model_dump())


def test_a_program_that_is_served_gets_the_prompt():
    serve = served_prompt(kind_of(PROMPT))
    asked = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    tools = [{"type": "function", "function": {"name": "finish", "description": "Old.", "parameters": {}}}]
    messages, offered = serve(asked, tools)
    assert messages == [{"role": "system", "content": PROMPT.said}, asked[1]]
    assert offered[0]["function"]["description"] == "Ends it." and tools[0]["function"]["description"] == "Old."
    assert serve(asked[1:], [])[0] == messages
    assert served_prompt("workspace") is None


def test_an_episode_as_text():
    call = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "/a"}'}}
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Read /a."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "0123456789"},
        {"role": "assistant", "content": "Done."},
    ]
    expected = 'Request: Read /a.\nCall: read_file(path="/a")\nReply: 0123 … (6 more characters)\nAnswer: Done.'
    assert shown_episode(messages, 4) == expected
    assert called({"function": {"name": "f", "arguments": "[1]"}}) == "f([1])"
