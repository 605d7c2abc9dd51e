"""Five typed answers about a task on DSPy, each in the form of its type, by structured output.

rollout: { harness: { command: [.venv-harnesses/dspy/bin/python, examples/dspy_answers.py], tools: none } }
"""

import json
import os
import sys
from typing import Literal

import dspy
from pydantic import BaseModel


class Plan(BaseModel):
    folder: Literal["/archive", "/vault", "/store", "/done"]
    files: int


QUESTIONS = {
    "mode": Literal["pattern", "prefix", "list", "content"],
    "steps": int,
    "certain": bool,
    "folders": list[Literal["/inbox", "/intake", "/queue", "/drop"]],
    "plan": Plan,
}


def main() -> None:
    task = json.load(sys.stdin)["messages"][-1]["content"]
    address, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    model = dspy.LM("openai/policy", api_base=address, api_key=key, cache=False, num_retries=0)
    dspy.configure(lm=model, adapter=dspy.JSONAdapter())
    answers = {}
    for name, kind in QUESTIONS.items():
        signature = dspy.Signature({"task": (str, dspy.InputField()), name: (kind, dspy.OutputField())})
        answers[name] = getattr(dspy.Predict(signature)(task=task), name)
    plan = answers.pop("plan")
    print(json.dumps({**answers, "plan": plan.model_dump()}))


if __name__ == "__main__":
    main()
