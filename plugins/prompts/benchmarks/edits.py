"""A reflection model from a table of edits that a person would make; and a real chat endpoint on 127.0.0.1 for any answers.

The table reads the request as a model would: the text to improve, and the feedback. Of the rows whose sign is in the feedback
and whose sentence is not in the text yet, the request's seed chooses one. Some rows are wrong guesses.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

# (what the feedback shows, the sentence that a person would add)
EDITS = (
    (r"manifest 0\.00", "Write the manifest before you finish."),
    (r"manifest 0\.00", "Keep calm."),
    (r"files_moved 0\.00", "Move every file that matches."),
    (r"files_moved 0\.00", "Finish soon."),
    (r"untouched 0\.00", "Read the list and move nothing else."),
    (r"asked 0\.00", "Look up the customer's orders first."),
    (r"asked 0\.00", "A shipped order is refunded, an open one is cancelled."),
    (r"asked 0\.00", "Be polite."),
    (r"Score 0\.00", "Be brief."),
)


def edited(request: str, seed: int) -> str:
    """The reply to a request for a better text."""
    current = request.split("```")[1].strip()
    rows = [sentence for sign, sentence in EDITS if re.search(sign, request) and sentence not in current]
    return f"```\n{current}{' ' + rows[seed % len(rows)] if rows else ''}\n```"


def edit(body: dict[str, Any]) -> dict[str, Any]:
    """The table's reply to a chat request."""
    return {"content": edited(body["messages"][-1]["content"], body["seed"])}


class ChatEndpoint:
    """The endpoint, as a context manager; `answer` makes a message of a request's body."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                data = json.dumps(_completion(body, answer(body))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _completion(body: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, **said}
    read, wrote = json.dumps(body["messages"]), json.dumps(said)
    usage = {"prompt_tokens": len(read) // 4, "completion_tokens": len(wrote) // 4}  # by characters: it has no tokenizer
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in said else "stop"}]
    return {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": choices, "usage": usage}
