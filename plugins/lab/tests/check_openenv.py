"""Runs OpenEnv's own checks over a folder of training traces, with a Python that has `openenv`; prints what they find.

Its model validates each call. Its graph links the calls by exact prefix of token ids, and its validator checks the sequences
and the structure that follow.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from openenv.core.harness.capture.graph import RolloutGraph, TurnNode
from openenv.core.harness.capture.validate import check_rollout, check_sequence
from openenv.core.harness.training import TrainingTrace

found, shapes, files = {}, {}, sorted(Path(sys.argv[1]).rglob("*.json"))
for path in files:
    try:
        trace = TrainingTrace.model_validate_json(path.read_text())
    except ValueError as error:
        found[path.name] = [str(error)]
        continue
    graph = RolloutGraph()
    for index, turn in enumerate(trace.turns):
        graph.add_turn(
            TurnNode(
                node_id=turn.node_id,
                prompt_ids=turn.prompt_token_ids,
                sampled_ids=turn.completion_token_ids,
                sampled_logprobs=turn.per_token_logps,
                index=index,
                request_messages=turn.request["messages"],
                response_message=turn.response["choices"][0]["message"],
            )
        )
    reports = [check_rollout(graph), *(check_sequence(sequence) for sequence in graph.sequences())]
    if fatal := [str(finding) for report in reports for finding in report.fatal]:
        found[path.name] = fatal
    shapes[path.name] = {name: graph.stats()[name] for name in ("n_turns", "n_roots", "n_forks")}
print(json.dumps({"version": version("openenv"), "checked": len(files), "errors": found, "shapes": shapes}))
