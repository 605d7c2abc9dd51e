"""The workspace agent as a program of its own: a client of OpenAI's, a loop, and tools behind HTTP.

It knows nothing of Tracewheel but where its task and its tools are. Train it as it is:

    rollout: { harness: { command: [python, examples/openai_agent.py] } }
"""

import json
import os
import sys

import httpx
from openai import OpenAI

MAX_TURNS = 20


def main() -> None:
    task = json.load(sys.stdin)
    model = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY say where it is
    headers = {"Authorization": f"Bearer {os.environ['TRACEWHEEL_API_KEY']}"}
    tools = httpx.Client(base_url=os.environ["TRACEWHEEL_TOOLS_URL"], headers=headers, timeout=None)
    messages = task["messages"]
    for _ in range(MAX_TURNS):
        reply = model.chat.completions.create(model="policy", messages=messages, tools=task["tools"]).choices[0]
        messages.append(reply.message.model_dump(exclude_none=True))
        for call in reply.message.tool_calls or []:
            result = tools.post(f"/call/{call.function.name}", content=call.function.arguments).json()
            if result["done"]:
                return
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result["text"]})
        if not reply.message.tool_calls:
            print(reply.message.content)
            return


if __name__ == "__main__":
    main()
