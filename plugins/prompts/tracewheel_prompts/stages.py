"""What a run with a section `prompt` computes: the prompt, and the tasks under a prompt. The store keeps both."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tracewheel import Context, CurateSections, Entry, EvaluateSections, Policy, stage_task, write_json
from tracewheel_prompts.optimising import Optimising
from tracewheel_prompts.players import LocalPlayer, curated_under
from tracewheel_prompts.settings import PromptSettings

PROMPT_FILE, REPORT_FILE = "prompt.json", "report.json"


class PromptSections(EvaluateSections):
    """What optimising reads of a profile."""

    prompt: PromptSettings


@stage_task("prompt", code="tracewheel_prompts.optimising", sections=PromptSections, packages=("gepa", "llguidance"))
def optimise_prompt(context: Context[PromptSections], *, policy: Policy, curated: Entry) -> dict[str, Any]:
    """A better prompt for a policy, by training tasks and a part of validation."""
    settings = context.config.prompt
    player = LocalPlayer(context.config, policy.ref(), curated.path, settings.samples, settings.seed)
    work = Optimising(settings, player, curated.path)
    context.reporter.say(work.budget)
    journals = context.reuse or context.out.parent
    journals.mkdir(parents=True, exist_ok=True)
    return write_found(work, journals / f"prompt-{work.identity}.jsonl", context.out)


@stage_task("prompted_tasks", code="tracewheel_prompts.players", sections=CurateSections)
def tell_tasks(context: Context[CurateSections], *, curated: Entry) -> Any:
    """The curated folder with its tasks in the profile's environment: the same ids, splits and components."""
    for file in sorted(curated.path.rglob("*")):
        if file.is_file() and file.name != "tasks.parquet":
            copy = context.out / file.relative_to(curated.path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    curated_under(curated.path, context.config.environment.spec, context.out)
    return curated.result


def write_found(work: Optimising, journal: Path, out: Path) -> dict[str, Any]:
    """Optimise and write the prompt and the report; returns the report without prompts that were tried."""
    _, report = work.run(journal, out / "gepa.log")
    write_json(out / REPORT_FILE, report)
    write_json(out / PROMPT_FILE, report["prompt"])
    return {name: value for name, value in report.items() if name not in ("candidates", "seen")}
