"""How much of a HumanEval or MBPP file loads as tasks, and whether its known solutions score 1 and `pass` scores 0.

python code_files.py HumanEval.jsonl.gz mbpp.jsonl
"""

import argparse
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tracewheel.scoring.verifiers import make_verifier
from tracewheel_worlds.code.loading import tasks_from_file

AT_ONCE = 4


def measured(path):
    """The figures of a file, and the tasks that do not score as they should."""
    loaded = tasks_from_file(path)
    verifier = make_verifier("unit_tests")

    def totals(task):
        goal = task.goal
        stub = task.initial_state["files"].get(goal["file"])
        nothing = f"{stub}    pass\n" if stub else f"def {goal['function']}(*given):\n    pass\n"
        verdicts = [
            verifier.judge(task, {"files": {goal["file"]: source}, "findings": []}) for source in (goal["solution"], nothing)
        ]
        return [verdict.total for verdict in verdicts], verdicts

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(totals, loaded.tasks))
    odd = {
        task.prompt.partition("\n")[0][:80]: [verdict.explanation for verdict in verdicts]
        for task, (pair, verdicts) in zip(loaded.tasks, found, strict=True)
        if pair != [1.0, 0.0]
    }
    return {
        "file": path.name,
        "records": len(loaded.tasks) + len(loaded.refused),
        "tasks": len(loaded.tasks),
        "cases": sum(len(task.goal["cases"]) for task in loaded.tasks),
        "refused": dict(Counter(loaded.refused.values())),
        "known_solution_scores_1": sum(pair[0] == 1.0 for pair, _ in found),
        "pass_scores_0": sum(pair[1] == 0.0 for pair, _ in found),
        "flagged_known_solutions": sum(verdicts[0].parts["flagged"] for _, verdicts in found),
        "odd": odd,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    print(json.dumps([measured(path) for path in parser.parse_args().files], indent=2))
