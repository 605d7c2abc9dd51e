"""The summary table of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from flows.console.look import result_console, say
from tracewheel.evaluation.wording import in_words
from tracewheel.operations.intake_record import sentences
from tracewheel.report.results import label_of

COLUMNS = {"success": "greedy", "sampled": "sampled", "harder": "harder tier"}
LOOP = ("rollout", "collect", "score", "update")
PLACES = {"report": "report", "adapter": "adapter", "model": "model", "mlflow_run": "MLflow run"}


def show_summary(summary: Mapping[str, Any], profile: str = "PROFILE.yaml") -> None:
    """Print success with 95% intervals, cost, the gate's verdict, the places of its files, and the next command."""
    console = result_console()
    table = Table(title=f"Run {summary['run_id']}: success on {summary['n_held_out']} held-out tasks, with 95% intervals")
    table.add_column("policy")
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right")
    for policy in summary["success"]:
        cells = [_cell(summary[name][policy], summary["intervals"][name][policy]) for name in COLUMNS]
        table.add_row(label_of(policy), *cells)
    console.print(table)
    seconds = summary["seconds"]
    loop = sum(seconds.get(stage, 0.0) for stage in LOOP)
    tokens = sum(summary["tokens"].values())
    console.print(
        f"cost        {sum(seconds.values()):.0f} s computed (warm starts {seconds.get('warm_start', 0.0):.0f} s, "
        f"RL {loop:.0f} s, evaluations {seconds.get('evaluate', 0.0):.0f} s), {tokens:,} tokens generated; "
        f"{summary['wall_seconds']:.0f} s this time",
        soft_wrap=True,
    )

    def line(label: str, text: str, style: str | None = None) -> None:
        console.print(f"{label:<11} {text}", style=style, markup=False, soft_wrap=True)

    if "leaks" in summary:
        line("leaks", f"every figure is in doubt: {summary['leaks']}", "red")
    for damaged in summary.get("damaged", []):
        line("made again", f"{damaged['entry']}: {damaged['flaw']}", "yellow")
    for counts in summary.get("lost_tasks", {}).values():
        line("lost tasks", counts["says"], "yellow")
    for sentence in sentences(summary["intake"]) if "intake" in summary else ():
        line("intake", sentence, "yellow")
    gate, success = summary["gate"], summary["success"]
    first, *others = in_words(gate)
    line("gate", first, "green" if gate["verdict"] == "promoted" else "yellow")
    for sentence in others:
        line("", sentence)
    if (logged := success.get("deployed")) is not None and logged > (success.get("rl") or 0.0):
        line("", f"the agent as logged solves {logged:.1%} of these tasks, more than the new policy", "yellow")
    if (approval := summary.get("approval")) and not approval["decision"]:
        command = f"`tracewheel champion approve {summary['run_id']} --by NAME`"
        line("approval", f"waits for a person: {command}, or the dashboard", "yellow")
    for point in summary.get("pareto", []):
        values = ", ".join(f"{name} {'–' if value is None else f'{value:.3f}'}" for name, value in point["objectives"].items())
        beaten = f"beaten by {', '.join(point['beaten_by'])}" if point["beaten_by"] else "not compared"
        line("objectives", f"{point['name']}: {values}; {'on the Pareto front' if point['on_front'] else beaten}")
    if summary.get("mlflow_waiting"):
        line("MLflow", f"the run waits for it: the next run delivers it, or `tracewheel runs sync {profile}`", "yellow")
    for name, label in PLACES.items():
        if summary.get(name):
            line(label, str(summary[name]))
    promoted = gate["verdict"] == "promoted"
    say(console, next=[f"tracewheel deploy {profile} --cron '0 3 * * *'" if promoted else f"tracewheel doctor {profile}"])


def _cell(value: float | None, interval: list[float] | None) -> str:
    if value is None:
        return "–"
    if interval is None:
        return f"{value:.1%}"
    return f"{value:.1%} ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
