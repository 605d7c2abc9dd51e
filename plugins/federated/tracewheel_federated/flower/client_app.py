"""The client's end: an order comes, its work is done by Tracewheel in a process of its own, an answer goes."""

from __future__ import annotations

import json
import os
import re
import traceback
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tracewheel_federated.flower.wire import pack, run, unpack

OUT = "TRACEWHEEL_FEDERATED_OUT"
NAME = "TRACEWHEEL_FEDERATED_NAME"
FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
app = ClientApp()


def answer(message: Message) -> RecordDict:
    """Carry out an order; of an error nothing travels but that there was one, as its text may tell of a log."""
    try:
        return carried_out(message)
    except Exception:  # the whole story stands in this client's log
        traceback.print_exc()
        return pack(json.dumps({"client": os.environ[NAME], "alike": "0" * 16, "refused": "failed"}), None)


def carried_out(message: Message) -> RecordDict:
    """The answer to an order, whose work is done in a folder of its own.

    Raises:
        ValueError: it is none of our orders.
        CalledProcessError: the work failed.
    """
    order = json.loads(message.content["said"]["json"])
    federation, number, work = str(order["federation"]), int(order["round"]), str(order["work"])
    if not FOLDER.fullmatch(federation) or work not in ("train", "validate", "judge"):
        raise ValueError("the server's order is none of ours")
    folder = Path(os.environ[OUT]) / "rounds" / federation / f"{number:03d}-{work}"
    unpack(message.content, folder, "order.json", "global.safetensors")
    run("client_work", str(folder))
    text = (folder / "answer.json").read_text(encoding="utf-8")
    trained = work == "train" and not json.loads(text)["refused"]
    return pack(text, folder / "adapter.safetensors" if trained else None)


@app.train()
def train(message: Message, _: Context) -> Message:
    return Message(answer(message), reply_to=message)


@app.evaluate()
def evaluate(message: Message, _: Context) -> Message:
    return Message(answer(message), reply_to=message)
