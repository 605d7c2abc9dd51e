"""The server's end: asks what the next step is, sends it, gathers answers until all are in or the wait is over, closes it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from tracewheel_federated.flower.wire import pack, run, unpack

POLL_SECONDS = 0.5
app = ServerApp()


@app.main()
def main(grid: Grid, _: Context) -> None:
    while step := json.loads(run("server_work", "next").splitlines()[-1]):
        folder = Path(step["folder"])
        play(grid, step, folder)
        said = json.loads(run("server_work", "close", str(folder)).splitlines()[-1])
        print(
            f"{folder.name}: {json.dumps({key: said[key] for key in said if key in ('clients', 'left_out', 'refused')})}",
            flush=True,
        )


def play(grid: Grid, step: dict[str, Any], folder: Path) -> None:
    """Send a step's order to the clients that have not answered it, and write their answers.

    Raises:
        TimeoutError: too few clients are connected.
    """
    clients = chosen(connected(grid, step), step)
    asked = {name: node for name, node in clients.items() if not (folder / "answers" / name / "answer.json").is_file()}
    content = pack((folder / "order.json").read_text(encoding="utf-8"), folder / "global.safetensors")
    kind = "train" if step["work"] == "train" else "evaluate"
    messages = [Message(content, dst_node_id=node, message_type=kind, group_id=folder.name) for node in asked.values()]
    sent = grid.push_messages(messages) if messages else []
    waiting = dict(zip(sent, asked, strict=True))
    end = time.monotonic() + step["wait"]
    while waiting and time.monotonic() < end:
        for reply in grid.pull_messages(list(waiting)):
            name = waiting.pop(reply.metadata.reply_to_message_id)
            if reply.has_content():
                receive(reply, folder / "answers" / name)
            else:
                print(f"{folder.name}: {name} cannot answer: {reply.error.reason}", flush=True)
        time.sleep(POLL_SECONDS)
    if waiting:
        print(f"{folder.name}: no answer in time from {', '.join(waiting.values())}", flush=True)


def receive(reply: Message, folder: Path) -> None:
    """Write an answer, under the name that the client's key is registered by; what it calls itself does not count."""
    try:
        unpack(reply.content, folder, "answer.json", "adapter.safetensors")
    except (ValueError, KeyError, TypeError) as error:
        print(f"{folder.name}: its answer cannot be read: {error}", flush=True)


def connected(grid: Grid, step: dict[str, Any]) -> dict[str, int]:
    """The clients that are connected and not quarantined, when there are enough of them."""
    end = time.monotonic() + step["wait"]
    while True:
        online = {int(node) for node in grid.get_node_ids()}
        found = {name: node for name, node in names(grid.get_nodes()) if node in online and name not in step["held"]}
        if len(found) >= step["least"]:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"{len(found)} clients are connected, and participation.least is {step['least']}")
        time.sleep(POLL_SECONDS)


def names(nodes: Iterable[Any]) -> list[tuple[str, int]]:
    """Name and id of each registered node."""
    return sorted((node.name, int(node.node_id)) for node in nodes if node.name)


def chosen(clients: dict[str, int], step: dict[str, Any]) -> dict[str, int]:
    """The share of the clients that is asked, by chance that depends on the round alone."""
    count = max(min(step["least"], len(clients)), round(step["share"] * len(clients)))
    picked = random.Random(step["round"]).sample(sorted(clients), count)
    return {name: clients[name] for name in sorted(picked)}
