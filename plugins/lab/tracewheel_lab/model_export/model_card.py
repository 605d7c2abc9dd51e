"""The model card of an exported policy: front matter that the Hub reads, and what a person must know before using it.

It holds digests and counts instead of names of files, tasks or users, no times and no paths: equal exports have equal cards.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from tracewheel import in_words
from tracewheel_lab.model_export.base_card import UNKNOWN
from tracewheel_lab.model_export.run_facts import FIGURES, POLICY, Figure, RunFacts, learned_rows, run_rows

NAMES = {
    "deployed": "deployed agent, as logged",
    "base": "base",
    "warm_start": "warm start, all logs",
    "warm_start_verified": "warm start, verified logs",
    "untrained": "base, fresh adapter",
    "champion": "champion before",
    "candidate": "candidate before",
    POLICY: "this policy",
}
FORMS = {
    "adapter": ("peft", "a LoRA adapter for its base, in PEFT's format"),
    "merged": ("transformers", "the whole model, with the adapter added to its base's weights; it needs no PEFT"),
}


@dataclass(frozen=True)
class Exported:
    """What was exported.

    Attributes:
        name: The model's name.
        form: `adapter` or `merged`.
        base: The base's name, without a path.
        hub_base: Its name on the Hub; None where it is not there, or not known.
        base_hash: The base's hash.
        license: The base's licence, by the Hub's name.
        digest: SHA-256 over the policy's files as the run registered them.
        dtype: The type of the weights.
        adapter: The adapter's config; empty for a whole model.
        files: SHA-256 of each exported file, by name.
        prompt: Digest of the prompt that belongs to it; None without one.
        datasets: Names on the Hub of public data that it learnt from, as the person who exports it gave them.
    """

    name: str
    form: str
    base: str
    hub_base: str | None
    base_hash: str
    license: str
    digest: str
    dtype: str
    adapter: Mapping[str, Any]
    files: Mapping[str, str]
    prompt: str | None = None
    datasets: tuple[str, ...] = ()


def model_card(exported: Exported, run: RunFacts | None) -> str:
    """The card, as Markdown with YAML front matter.

    Args:
        exported: What was exported.
        run: The run that trained it; None where its record was not at hand.
    """
    parts = [
        f"---\n{_front_matter(exported, run)}\n---",
        f"# {exported.name}",
        _opening(exported),
        "## Use\n\n" + _use(exported) + _prompt(exported, run),
        "## Data\n\n" + _data(run),
        "## Training\n\n" + _training(exported, run),
        "## Results\n\n" + _results(run),
        "## Gate\n\n" + _gate(run),
        "## Lineage\n\n" + _lineage(exported, run),
        "## Limits\n\n" + _limits(exported, run),
        "## Licence\n\n" + _license(exported),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(exported: Exported, run: RunFacts | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="text-generation",
            task_name="Agent tasks with tools",
            dataset_type="held-out-agent-tasks",
            dataset_name=f"{run.held_out} held-out tasks of run {run.run_id}" if figure.kind != "harder" else "harder tier",
            dataset_split="test",
            metric_type=f"success_{figure.kind}" if figure.kind != "success" else "success",
            metric_name=FIGURES[figure.kind],
            metric_value=round(figure.value, 4),
            metric_args={"interval_95": [round(end, 4) for end in figure.interval]} if figure.interval else None,
        )
        for figure in (run.figures if run else [])
        if run and figure.policy == POLICY
    ]
    card = ModelCardData(
        model_name=exported.name,
        base_model=exported.hub_base,
        base_model_relation={"adapter": "adapter", "merged": "finetune"}[exported.form] if exported.hub_base else None,
        license=exported.license,
        library_name=FORMS[exported.form][0],
        pipeline_tag="text-generation",
        tags=["tracewheel", "agent", "tool-use", *(["lora"] if exported.form == "adapter" else [])],
        datasets=list(exported.datasets) or None,
        metrics=["success"] if results else None,
        eval_results=results or None,
    )
    return str(card.to_yaml()).strip()


def _opening(exported: Exported) -> str:
    return _wrapped(
        f"This is {FORMS[exported.form][1]}. Tracewheel {version('tracewheel')} trained it on the logged traces of an agent. "
        f"Base: {exported.base} (hash `{exported.base_hash}`)."
    )


def _use(exported: Exported) -> str:
    if exported.form == "adapter":
        base = exported.hub_base or exported.base
        return (
            "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
            f'base = AutoModelForCausalLM.from_pretrained("{base}")\n'
            'model = PeftModel.from_pretrained(base, "this folder")\n```\n\n'
            + _wrapped("The base must be the one with the hash above: on another one the adapter means nothing.")
        )
    return (
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("this folder")\n'
        'tokenizer = AutoTokenizer.from_pretrained("this folder")\n```'
    )


def _prompt(exported: Exported, run: RunFacts | None) -> str:
    if run is None:
        return "\n\n" + _wrapped("Whether it was judged under a prompt of its own is not known: see the record of its run.")
    if exported.prompt is None:
        return ""
    return "\n\n" + _wrapped(
        f"It is one half of a pair: the gate judged it under the prompt in `prompt.json` (digest `{exported.prompt}`), which "
        "holds the system message, descriptions of tools and demonstrations. Without it this is another policy. Read it before "
        "you pass it on: demonstrations are episodes of the logs."
    )


def _data(run: RunFacts | None) -> str:
    if run is None:
        return _wrapped("Not known: the record of the run that trained it was not at hand when it was exported.")
    intake = run.intake
    text = "Logs of an agent. This card holds no word of them: counts and digests only."
    rows = [
        f"| {name.replace('_', ' ')} | {intake[name]:,} |"
        for name in ("found", "read", "kept", "duplicates", "quarantined", "held")
        if name in intake
    ]
    rows += [f"| tasks: {side} | {count:,} |" for side, count in run.sides.items()]
    rows += [f"| {name} | {count:,} |" for name, count in learned_rows(run)]
    slices = [f"| {lines:,} | `{digest}` |" for digest, lines in run.slices]
    parts = [_wrapped(text)]
    if rows:
        parts.append("\n".join(["| records and tasks | number |", "|---|---:|", *rows]))
    if slices:
        parts.append("\n".join(["| lines of a log | SHA-256 |", "|---:|---|", *slices]))
    return "\n\n".join(parts)


def _training(exported: Exported, run: RunFacts | None) -> str:
    rows = []
    if exported.adapter:
        rows.append(("LoRA", f"rank {exported.adapter.get('r')}, alpha {exported.adapter.get('lora_alpha')}"))
    rows.append(("type of the weights", exported.dtype))
    if run is not None:
        config = run.config
        learner, warm = config.get("learner") or {}, config.get("warm_start") or {}
        values = {
            "warm start, epochs": warm.get("epochs"),
            "warm start, learning rate": warm.get("learning_rate"),
            "reinforcement learning": learner.get("kind"),
            "its learning rate": learner.get("learning_rate"),
            "its iterations": (config.get("training") or {}).get("iterations"),
            "seed": config.get("seed"),
            "environment": str((config.get("environment") or {}).get("kind", "")).partition(":")[0],
        }
        rows += [(name, str(value)) for name, value in values.items() if value not in (None, "")]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _results(run: RunFacts | None) -> str:
    if run is None or not run.figures:
        return _wrapped("Not known.")
    policies = list(dict.fromkeys(figure.policy for figure in run.figures))
    by = {(figure.policy, figure.kind): figure for figure in run.figures}
    lines = [f"| policy | {' | '.join(FIGURES.values())} |", f"|---|{'---:|' * len(FIGURES)}"]
    lines += [
        f"| {NAMES.get(policy, policy)} | {' | '.join(_cell(by.get((policy, kind))) for kind in FIGURES)} |"
        for policy in policies
    ]
    return _wrapped(f"On {run.held_out} held-out tasks, with 95% intervals.") + "\n\n" + "\n".join(lines)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    ends = f" ({figure.interval[0]:.1%} to {figure.interval[1]:.1%})" if figure.interval else ""
    return f"{figure.value:.1%}{ends}"


def _gate(run: RunFacts | None) -> str:
    if run is None or not run.gate:
        return _wrapped("No gate has judged it, as far as is known.")
    return "\n".join(_wrapped(f"- {sentence}", "  ") for sentence in in_words(run.gate))


def _lineage(exported: Exported, run: RunFacts | None) -> str:
    rows = [("policy, SHA-256", f"`{exported.digest}`"), ("base, hash", f"`{exported.base_hash}`")]
    rows += run_rows(run) if run else []
    rows += [(f"`{name}`, SHA-256", f"`{digest}`") for name, digest in exported.files.items()]
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    if run is None:
        return table
    return (
        f"{table}\n\n"
        + _wrapped("To repeat it, with the commit, the profile and the logs of these digests:")
        + f"\n\n```\ntracewheel reproduce {run.run_id}\n```"
    )


def _limits(exported: Exported, run: RunFacts | None) -> str:
    lines = ["It learnt one agent's tasks, with that agent's tools. What it does elsewhere was not measured."]
    if run is not None and run.gate.get("verdict") not in (None, "promoted"):
        lines.append("The gate did not promote it: that it is better than what it was compared with is not shown.")
    if run is None:
        lines.append("No figure is known of it.")
    lines.append(
        "It was trained on logs. Redaction removes what it recognises; that a model repeats nothing of its logs is not shown."
    )
    return "\n".join(_wrapped(f"- {line}", "  ") for line in lines)


def _license(exported: Exported) -> str:
    if exported.license == UNKNOWN:
        return _wrapped("The licence of the base is unknown: its files do not say it. Find it out before you pass this on.")
    return _wrapped(f"The base's licence is `{exported.license}`, by its own files; what is derived from it is bound by it.")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
