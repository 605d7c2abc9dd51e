"""The profile's own engine as the policy; and MLflow's registry."""

from plugins.prompts.tests.conftest import profile_of
from tracewheel import PolicyRef, open_environment
from tracewheel_prompts.players import LocalPlayer
from tracewheel_prompts.prompt import Prompt
from tracewheel_prompts.registry import register


def test_the_engine_reads_the_prompt_and_repeats_itself(logs, config, curated, splits, base, tmp_path):
    rollout = {"engine": {"slots": 8}, "max_tokens": 400, "max_turn_tokens": 48, "group_size": 4}
    profile = profile_of(logs, policy={"base": base}, rollout=rollout)
    player = LocalPlayer(profile, PolicyRef(base), curated, samples=1, seed=3)
    prompt, tasks = Prompt(system="Tidy."), splits["validation"][:2]  # of another split than training
    played = player.play(prompt, tasks)
    assert [one.trajectory.task_id for one in played] == [task.id for task in tasks]
    for one in played:
        assert one.trajectory.messages[0] == {"role": "system", "content": "Tidy."}
        assert one.tokens == sum(one.trajectory.action_mask) > 0 and one.score.total is not None
    again = player.play(prompt, tasks[:1])
    assert again[0].trajectory.token_ids == played[0].trajectory.token_ids
    found = player.evaluate(prompt, "validation", [tasks[0].id], tmp_path / "e")
    assert found["tasks"] == 1 and (tmp_path / "e" / "results.parquet").is_file()
    with open_environment("workspace") as plain:
        assert plain.system_prompt != "Tidy."


def test_versions_of_a_prompt(logs, tmp_path):
    tracking = {"uri": f"sqlite:///{tmp_path}/mlflow.db", "model_name": "agent"}
    config = profile_of(logs, tracking=tracking)

    def report(system, verdict):
        prompt = Prompt(system=system)
        return {
            "prompt": {**prompt.model_dump(mode="json"), "digest": prompt.digest},
            "before": {"digest": "b"},
            "policy": "base",
            "stopped": "iterations",
            "gate": verdict and {"verdict": verdict},
        }

    assert register(config, report("Use {{braces}}.", "promoted")) == "agent-prompt/1"
    assert register(config, report("Use {{braces}}.", "promoted")) == "agent-prompt/1"
    assert register(config, report("Other.", "refused")) == "agent-prompt/2"
    import mlflow

    champion = mlflow.genai.load_prompt("prompts:/agent-prompt@champion")
    assert champion.version == 1 and '"Use {{braces}}."' in champion.template
    assert champion.tags["digest"] == Prompt(system="Use {{braces}}.").digest and champion.tags["verdict"] == "promoted"
