"""False accepts and false rejects of built-in graders, and of graders with planted weaknesses, as a table.

python benchmarks/graders.py                       # kinds that need no sandbox, 200 tasks each, and the weak ones
python benchmarks/graders.py code terminal patch --tasks 60  # kinds whose every grading runs a box
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tracewheel.config import AuditConfig, AuditSections, EnvironmentConfig, EvaluationConfig, RubricConfig
from tracewheel_graders.audit.audit import audit, generated_tasks

KINDS = ("workspace", "order_desk", "refund_desk", "assistant", "retrieval")
# Where a weak grader is for another environment than the workspace, and how many tasks.
WEAK_IN = dict.fromkeys(("ConfusesTypes", "RoundsCoarsely", "OnlyLastCall"), ("order_desk", 60))
WEAK_IN["ReadsWhatIsPrinted"] = ("code", 8)
WEAK = Path(__file__).parents[1] / "plugins/graders/tests"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    columns = (
        "verifier",
        "environment",
        "tasks",
        "wrong accepted",
        "right refused",
        "exploitable at most",
        "doubtful",
        "unscored",
    )
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in options.kinds or KINDS:
        row(kind, None, options.tasks)
    if options.kinds:
        return
    sys.path.insert(0, str(WEAK))
    import weak_graders

    for name, found in vars(weak_graders).items():
        if isinstance(found, type) and found.__module__ == "weak_graders" and name != "WeakManifest":
            kind, tasks = WEAK_IN.get(name, ("workspace", 60))
            row(kind, f"weak_graders:{name}", tasks)


def row(kind: str, verifier: str | None, tasks: int) -> None:
    """Audit a verifier, and print its row."""
    audited, settings = EnvironmentConfig(kind=kind), AuditConfig(tasks=tasks)
    config = AuditSections(environment=audited, rubric=RubricConfig(), evaluation=EvaluationConfig(), audit=settings)
    with tempfile.TemporaryDirectory() as out:
        made = audit(config, generated_tasks(config), Path(out), verifier=verifier)
    for spec, found in made["verifiers"].items():
        accepted, refused = (
            f"{rate['wrong']} of {rate['probes']} ({100 * rate['low']:.2f} to {100 * rate['high']:.2f}%)"
            for rate in (found["false_accept"], found["false_reject"])
        )
        differ = ", ".join(f"{count} differ in another {what}" for what, count in found["repeats"]["differ"].items() if count)
        name = f"`{spec}`" + (f" ({differ})" if differ else "")
        upper = f"{100 * found['exploitable']['upper']:.1f}% of tasks"
        counts = f"{found['doubtful']} | {found['unscored']}"
        print(f"| {name} | {kind} | {found['tasks']} | {accepted} | {refused} | {upper} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
