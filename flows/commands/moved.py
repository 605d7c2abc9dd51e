"""Names of commands that were others before: they answer with the new one, for one version."""

from __future__ import annotations

import re
from collections.abc import Sequence

NOW = {
    "approve": "champion approve",
    "promote": "champion promote",
    "rollback": "champion rollback",
    "status": "runs status",
    "gc": "runs gc",
    "sync": "runs sync",
    "report": "runs report",
    "labels": "runs labels",
    "reproduce": "runs reproduce",
    "base-policy": "stage base-policy",
    "check-template": "stage check-template",
    "improve": "stage improve",
    "rollout": "stage rollout",
    "score": "stage score",
    "update": "stage update",
    "warm-start": "stage warm-start",
    "dvc": "stage",
    "make-tasks": "data make-tasks",
    "baseline": "evaluate --endpoint",
    "calibrate-judge": "audit --labelled",
    "gateway": "serve --gateway",
}
WHEELS = {
    "audit": "graders",
    "backtest": "lab",
    "batches": "screening",
    "collect": "sources",
    "compare": "lab",
    "credit-tools": "search",
    "credit-turns": "search",
    "data diff": "lab",
    "data explain": "logs",
    "data filter": "lab",
    "data make-tasks": "projects",
    "data record": "projects",
    "explore": "search",
    "export": "lab",
    "export-gguf": "lab",
    "export-openlineage": "lab",
    "export-traces": "lab",
    "federated": "federated",
    "forget": "forgetting",
    "init": "projects",
    "judge-replies": "graders",
    "merge": "lab",
    "preview": "lab",
    "prompt": "prompts",
    "relabel": "search",
    "replay": "search",
    "runs labels": "labels",
    "runs reproduce": "lab",
    "runs worth": "lab",
    "sandbox": "worlds",
    "search": "search",
    "self-play": "selfplay",
    "self-reward": "selfplay",
    "stage base-policy": "projects",
    "stage prompt": "prompts",
    "train-process-model": "search",
    "train-reward-model": "lab",
}


def moved(words: Sequence[str]) -> str:
    """What to say of a name that is no command any more, or that of a wheel which is not installed; "" of others."""
    first = words[0] if words else ""
    if first in NOW:
        rest = f" {words[1]}" if first == "dvc" and words[1:] else ""
        return f"tracewheel {first}{rest} is now tracewheel {NOW[first]}{rest}"
    if first == "export" and re.search(r"--format[ =]gguf\b", " ".join(words)):
        return "tracewheel export --format gguf is now --format merged, and then tracewheel export-gguf (wheel tracewheel-lab)"
    if first == "ingest" and "--explain" in words:
        return "tracewheel ingest --explain FILE is now tracewheel data explain FILE"
    if first == "ingest" and "--mlflow-uri" in words:
        return "tracewheel ingest --mlflow-uri URI --experiment NAME is a source now: tracewheel ingest mlflow:URI/NAME"
    name = next((name for name in (" ".join(words[:2]), first) if name in WHEELS), None)
    if name:
        from flows.commands.command import find_commands

        if not any(f"{command.name} ".startswith(f"{name} ") for command in find_commands(first)):
            return f"tracewheel {name} is in the wheel tracewheel-{WHEELS[name]}, which is not installed: make setup-plugins"
    return ""
