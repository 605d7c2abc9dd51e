"""The workspace agent on the OpenAI Agents SDK, which speaks the Responses API.

rollout: { harness: { command: [.venv-harnesses/bin/python, examples/openai_agents_agent.py] } }
"""

import json
import os
import sys

import httpx
from agents import Agent, FunctionTool, Runner, set_tracing_disabled
from agents.exceptions import MaxTurnsExceeded

MAX_TURNS = 20


def main() -> None:
    set_tracing_disabled(True)  # it would be sent to OpenAI
    task = json.load(sys.stdin)
    headers = {"Authorization": f"Bearer {os.environ['TRACEWHEEL_API_KEY']}"}
    desk = httpx.AsyncClient(base_url=os.environ["TRACEWHEEL_TOOLS_URL"], headers=headers, timeout=None)

    def tool(function: dict) -> FunctionTool:
        async def use(context: object, arguments: str) -> str:
            reply = await desk.post(f"/call/{function['name']}", content=arguments)
            return reply.json()["text"]

        name, description, schema = function["name"], function["description"], function["parameters"]
        return FunctionTool(name, description, schema, use, strict_json_schema=False)

    system, *messages = task["messages"]
    tools = [tool(offered["function"]) for offered in task["tools"]]
    agent = Agent("clerk", instructions=system["content"], model="policy", tools=tools)
    try:
        print(Runner.run_sync(agent, messages, max_turns=MAX_TURNS).final_output)
    except MaxTurnsExceeded:
        print(f"not done after {MAX_TURNS} turns")


if __name__ == "__main__":
    main()
