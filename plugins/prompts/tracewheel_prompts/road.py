"""The stage of a run with a section `prompt`: after the warm start the prompt is optimised, then the policy under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tracewheel import DataError, InfrastructureError, Played, Policy, Run, open_environment, read_json, write_json
from tracewheel_prompts.players import prompted, start_of, within
from tracewheel_prompts.prompt import Prompt
from tracewheel_prompts.registry import follow, prompt_of_run, register
from tracewheel_prompts.settings import PromptSettings
from tracewheel_prompts.stages import PROMPT_FILE, optimise_prompt, tell_tasks

if TYPE_CHECKING:
    from tracewheel import RetrainConfig

SUMMARY_FILE = "summary.json"  # of a run that is complete


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
            DataError: its run is there, and its prompt is gone or was changed.
            InfrastructureError: its run is gone, and MLflow, which knows its prompt, does not answer.
        """
        return _told(played, prompt_of(played.run.config, start["champion"]["run_id"]) or _plain(played.run))

    def served(self, config: RetrainConfig, run_id: str) -> Callable[..., Any] | None:
        """The champion's prompt in place of the system messages of programs; None where it was promoted without one.

        Raises:
            DataError, InfrastructureError: as for `champion`.
        """
        prompt = prompt_of(config, run_id)
        return prompt and prompt.serve

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
        return _told(played, Prompt.from_record(found.result["prompt"]))

    def delivered(self, config: RetrainConfig, champion: str, say: Callable[[str], None]) -> None:
        """Register the prompts of runs that MLflow lacks; the alias `champion` is the prompt of the champion's run."""
        try:
            for path in sorted(Path(config.work_dir).glob(f"*/{PROMPT_FILE}")):
                record = read_json(path)
                if "registered" not in record and (ended := path.with_name(SUMMARY_FILE)).is_file():
                    name = register(config, {**record, "gate": read_json(ended)["gate"]}, path.parent.name)
                    write_json(path, {**record, "registered": name})
                    say(f"prompt of run {path.parent.name}: registered as {name}")
            follow(config, champion)
        except (DataError, InfrastructureError) as error:
            say(f"{error}; `tracewheel runs sync` brings it later")


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


def prompt_of(config: RetrainConfig, run_id: str) -> Prompt | None:
    """The prompt that a run ended with, from its record, or from MLflow where the record is gone; None without one.

    Raises:
        DataError: the record has lost it, or holds another.
        InfrastructureError: MLflow is needed and does not answer.
    """
    record = Path(config.work_dir) / run_id
    if not run_id or not (record / "config.yaml").is_file():
        return prompt_of_run(config, run_id)
    values = yaml.safe_load((record / "config.yaml").read_text(encoding="utf-8"))
    if "prompt" in values:
        return _prompt(record / PROMPT_FILE) or _found(prompt_of_run(config, run_id), record / PROMPT_FILE)
    environment = values.get("environment", {})
    return Prompt.model_validate(environment["args"].get("prompt", {})) if environment.get("kind") == "prompted" else None


def _prompt(path: Path) -> Prompt | None:
    if not path.is_file():
        return None
    try:
        return Prompt.from_record(read_json(path).get("prompt"))
    except (AttributeError, ValueError) as error:
        raise DataError(f"{path}: is not what the gate judged: {error}") from error


def _found(prompt: Prompt | None, path: Path) -> Prompt:
    if prompt is None:
        raise DataError(f"{path}: is gone, and MLflow has no prompt of this run; restore an adapter alone: champion rollback")
    return prompt
