"""Five typed answers about a task on DSPy, each in the form of its type, by structured output.

rollout: { harness: { command: [.venv-harnesses/dspy/bin/python, examples/dspy_answers.py], tools: none } }
"""

import json
import os
import sys
from typing import Literal

import dspy
from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider
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
    # Of a model that DSPy does not know it asks for any JSON object, unless it is told that schemas are held to.
    access = AccessPolicy(provider="gateway", env_keys=("OPENAI_API_KEY",), base_url=os.environ["OPENAI_BASE_URL"])
    register_provider(ProviderDefinition.chat(access, compat=OpenAIChatCompat()), supports=ModelSupport(response_schema=True))
    dspy.configure(lm=dspy.LM("gateway/policy", cache=False, num_retries=0), adapter=dspy.JSONAdapter())
    answers = {}
    for name, kind in QUESTIONS.items():
        signature = dspy.Signature({"task": (str, dspy.InputField()), name: (kind, dspy.OutputField())})
        answers[name] = getattr(dspy.Predict(signature)(task=task), name)
    plan = answers.pop("plan")
    print(json.dumps({**answers, "plan": plan.model_dump()}))


if __name__ == "__main__":
    main()
