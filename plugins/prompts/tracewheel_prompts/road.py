"""The stage of a run with a section `prompt`: after the warm start the prompt is optimised, then the policy under it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tracewheel import InfrastructureError, Played, Policy, Run, open_environment, read_json
from tracewheel_prompts.players import prompted, start_of, within
from tracewheel_prompts.prompt import Prompt
from tracewheel_prompts.registry import prompt_of_run, register
from tracewheel_prompts.settings import PromptSettings
from tracewheel_prompts.stages import PROMPT_FILE, optimise_prompt, tell_tasks


class PromptStage:
    """Section `prompt` of a profile, with the settings of `tracewheel prompt`.

    Example:
        >>> PromptStage.Settings(reflection={"endpoint": "http://127.0.0.1:8000/v1", "model": "large"}).optimizer
        'gepa'
    """

    Settings = PromptSettings

    def champion(self, played: Played, start: Mapping[str, Any]) -> Played:
        """The champion under the prompt that it was promoted with.

        Raises:
            InfrastructureError: its run is gone, and MLflow, which knows its prompt, does not answer.
        """
        run_id = start["champion"]["run_id"]
        record = played.run.record.path.parent / run_id
        known = (record / "config.yaml").is_file()
        prompt = _kept(record) if known else prompt_of_run(played.run.config, run_id)
        return _told(played, prompt or _plain(played.run))

    def challenger(self, played: Played, policy: Policy) -> Played:
        """The policy under the best prompt that was found for it."""
        run = played.run
        found = optimise_prompt(run, policy=policy, curated=played.curated)
        told = {name: found.result[name] for name in ("prompt", "before", "tokens", "iterations", "stopped", "reflection")}
        run.record.write(PROMPT_FILE, {**told, "policy": found.result["policy"]})
        lineage = {**run.record.lineage, "prompt": {"entry": found.path.name, "digest": found.digest, **told}}
        run.record.write("lineage.json", lineage)
        before, after = (found.result[name]["digest"] for name in ("before", "prompt"))
        changed = (
            f"prompt {before} is now {after}" if before != after else f"prompt {before} stays: none was better on validation"
        )
        run.reporter.say(f"{changed} ({told['tokens']:,} sampled tokens, {told['reflection']['asked']} replies)")
        return _told(played, _prompt(found.result["prompt"]))

    def ended(self, run: Run, verdict: Mapping[str, Any]) -> None:
        """Register the prompt with MLflow, as champion where the gate has promoted the pair."""
        path = run.record.path / PROMPT_FILE
        if not path.is_file():
            return
        try:
            name = register(run.config, {**read_json(path), "gate": {"verdict": verdict["verdict"]}}, run.record.run_id)
        except InfrastructureError as error:
            run.reporter.say(f"{error}; {path} holds it")
        else:
            run.reporter.say(f"prompt: registered as {name}")


def _told(played: Played, prompt: Prompt) -> Played:
    """The tasks under a prompt; as they are where it is theirs already."""
    if prompt == (start_of(played.run.config) or _plain(played.run)):
        return played
    run = replace(played.run, config=prompted(played.run.config, prompt))
    return Played(run, tell_tasks(run, curated=played.curated))


def _plain(run: Run) -> Prompt:
    """What the environment says without a prompt of its own."""
    kind, args = within(run.config)
    section = type(run.config.environment).model_validate({"kind": kind, "args": args})
    with open_environment(section.spec) as environment:
        return Prompt(system=environment.system_prompt)


def _kept(record: Path) -> Prompt | None:
    """The prompt that a run of this work folder ended with; None without one."""
    if (record / PROMPT_FILE).is_file():
        return _prompt(read_json(record / PROMPT_FILE)["prompt"])
    environment = yaml.safe_load((record / "config.yaml").read_text(encoding="utf-8"))["environment"]
    return Prompt.model_validate(environment["args"].get("prompt", {})) if environment["kind"] == "prompted" else None


def _prompt(record: Mapping[str, Any]) -> Prompt:
    return Prompt.model_validate({name: value for name, value in record.items() if name != "digest"})
