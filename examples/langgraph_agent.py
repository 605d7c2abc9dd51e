"""The workspace agent on LangGraph, with LangChain's client of OpenAI.

rollout: { harness: { command: [.venv-harnesses/bin/python, examples/langgraph_agent.py] } }
"""

import json
import os
import sys

import httpx
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

MAX_STEPS = 40


def main() -> None:
    task = json.load(sys.stdin)
    headers = {"Authorization": f"Bearer {os.environ['TRACEWHEEL_API_KEY']}"}
    desk = httpx.Client(base_url=os.environ["TRACEWHEEL_TOOLS_URL"], headers=headers, timeout=None)
    model = ChatOpenAI(model="policy").bind_tools(task["tools"])

    def think(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [model.invoke(state["messages"])]}

    def act(state: MessagesState) -> dict[str, list[BaseMessage]]:
        results: list[BaseMessage] = []
        for call in state["messages"][-1].tool_calls:
            result = desk.post(f"/call/{call['name']}", json=call["args"]).json()
            if result["done"]:
                sys.exit(0)
            results.append(ToolMessage(result["text"], tool_call_id=call["id"]))
        return {"messages": results}

    def acts(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "act" if isinstance(last, AIMessage) and last.tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", acts)
    graph.add_edge("act", "think")
    said = graph.compile().invoke({"messages": task["messages"]}, {"recursion_limit": MAX_STEPS})
    print(said["messages"][-1].text)


if __name__ == "__main__":
    main()
