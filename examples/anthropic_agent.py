"""The workspace agent as a program of its own, on Anthropic's SDK: a loop, and tools behind HTTP.

It knows nothing of Tracewheel but where its task and its tools are. Train it as it is:

    rollout: { harness: { command: [python, examples/anthropic_agent.py] } }
"""

import json
import os
import sys

import httpx
from anthropic import Anthropic

MAX_TURNS, MAX_TOKENS = 20, 48


def main() -> None:
    task = json.load(sys.stdin)
    model = Anthropic()  # ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY say where it is
    headers = {"Authorization": f"Bearer {os.environ['TRACEWHEEL_API_KEY']}"}
    desk = httpx.Client(base_url=os.environ["TRACEWHEEL_TOOLS_URL"], headers=headers, timeout=None)
    functions = [tool["function"] for tool in task["tools"]]
    tools = [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]} for f in functions]
    system, *messages = task["messages"]
    for _ in range(MAX_TURNS):
        reply = model.messages.create(
            model="policy", max_tokens=MAX_TOKENS, system=system["content"], tools=tools, messages=messages
        )
        messages.append({"role": "assistant", "content": reply.content})
        results = []
        for block in reply.content:
            if block.type == "tool_use":
                result = desk.post(f"/call/{block.name}", json=block.input).json()
                if result["done"]:
                    return
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": result["text"]})
        if not results:
            print("".join(block.text for block in reply.content if block.type == "text"))
            return
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main()
