"""The workspace agent on Pydantic AI.

rollout: { harness: { command: [.venv-harnesses/bin/python, examples/pydantic_ai_agent.py] } }
"""

import json
import os
import sys

import httpx
from pydantic_ai import Agent, Tool, UsageLimitExceeded, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel

MAX_TURNS = 20


def main() -> None:
    task = json.load(sys.stdin)
    headers = {"Authorization": f"Bearer {os.environ['TRACEWHEEL_API_KEY']}"}
    desk = httpx.AsyncClient(base_url=os.environ["TRACEWHEEL_TOOLS_URL"], headers=headers, timeout=None)

    def tool(function: dict) -> Tool:
        async def use(**arguments: object) -> str:
            return (await desk.post(f"/call/{function['name']}", json=arguments)).json()["text"]

        made = Tool.from_schema(use, function["name"], function["description"], function["parameters"])
        made.strict = False  # otherwise the SDK writes the schemas in another way
        return made

    system, request = task["messages"]
    tools = [tool(offered["function"]) for offered in task["tools"]]
    agent = Agent(OpenAIChatModel("policy"), system_prompt=system["content"], tools=tools)
    try:
        print(agent.run_sync(request["content"], usage_limits=UsageLimits(request_limit=MAX_TURNS)).output)
    except UsageLimitExceeded as limit:
        print(limit)


if __name__ == "__main__":
    main()
