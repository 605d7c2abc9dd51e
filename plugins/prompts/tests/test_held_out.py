"""A prompt that shows a task outside training is refused, wherever it is given."""

import json

import pytest
import yaml

from plugins.prompts.tests.conftest import profile_of, settings_for
from tracewheel import CurateSections, LeakError, curate, ingest, read_table
from tracewheel_prompts.held_out import check_prompt
from tracewheel_prompts.players import prompted
from tracewheel_prompts.prompt import Prompt, shown_episode


@pytest.fixture(scope="session")
def shown(curated):
    """Logged episodes as text by split, the first of a task."""
    rows = read_table(curated / "episodes.parquet", ["task_id", "split", "messages"]).drop_duplicates("task_id")
    return {
        split: {task: shown_episode(json.loads(text), 300) for task, text in zip(own["task_id"], own["messages"], strict=True)}
        for split, own in rows.groupby("split")
    }


def test_episodes_of_training_tasks_may_be_shown(curated, shown):
    check_prompt(Prompt(system="Tidy up.", demonstrations=tuple(shown["train"].values())[:16]), curated)


@pytest.mark.parametrize("split", ["validation", "held_out"])
def test_those_of_other_tasks_are_refused(curated, shown, split):
    train = next(iter(shown["train"].values()))
    for text in list(shown[split].values())[:6]:
        with pytest.raises(LeakError, match=rf"demonstration 2 of the prompt holds task \S+ of {split}, on which"):
            check_prompt(Prompt(demonstrations=(train, text)), curated)
    changed = text.replace("ok", "done").replace("finish", "end")  # a near copy
    for prompt in (Prompt(demonstrations=(changed,)), Prompt(system=f"Like this:\n{text}"), Prompt(tools={"finish": text})):
        with pytest.raises(LeakError, match=split):
            check_prompt(prompt, curated)


def test_commands_and_curation_refuse_it(curated, shown, logs, tmp_path, table, policy, capsys):
    from flows.cli import main

    text = next(iter(shown["held_out"].values()))
    baseline = {"endpoint": policy.url, "model": "policy", "max_turn_tokens": 100, "retries": 0}
    section = settings_for(table.url).model_dump(mode="json")
    plain = profile_of(logs, work_dir=str(tmp_path / "work"), baseline=baseline, policy={"base": str(tmp_path)}, prompt=section)
    config = prompted(plain, Prompt(demonstrations=(text,)))
    profile, settings = tmp_path / "profile.yaml", tmp_path / "settings.yaml"
    profile.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    settings.write_text(yaml.safe_dump(section))
    words = ["--curated", str(curated), "--out", str(tmp_path / "out")]
    for command in (["prompt", str(profile), str(settings), "--baseline"], ["stage", "prompt", str(profile)]):
        assert main([*command, *words]) == 2
        assert "demonstration 1 of the prompt holds task" in capsys.readouterr().err
    assert not table.requests and not policy.requests and not (tmp_path / "out").exists()

    ingest(config.ingest, tmp_path / "ingested")
    with pytest.raises(LeakError, match="demonstration 1 of the prompt holds task"):
        curate(CurateSections.of(config), tmp_path / "ingested", tmp_path / "refused")
    allowed = config.model_copy(update={"curation": config.curation.model_copy(update={"allow_leak": True})})
    curate(CurateSections.of(allowed), tmp_path / "ingested", tmp_path / "allowed")
