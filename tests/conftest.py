"""Shared by all tests: one thread, no network, and the shipped tiny base policy."""

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("PREFECT_HOME", tempfile.mkdtemp(prefix="tracewheel-prefect-"))
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
os.environ.setdefault("DO_NOT_TRACK", "1")

import tracewheel  # noqa: F401, I001 (before torch: it sets how torch's threads wait)

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from tests import reaper
from tracewheel.core.kind_table import give

reaper.start()
give("tests.own:Kind", "examples.own:Kind")  # what tests and examples name is the user's own
torch.set_num_threads(1)
# The same examples each time; `make test-all` tries more of them.
settings.register_profile("tests", deadline=None, derandomize=True, database=None, max_examples=50)
settings.register_profile("all", settings.get_profile("tests"), max_examples=500)
settings.load_profile(os.environ.get("TRACEWHEEL_EXAMPLES", "tests"))

BASE = Path(__file__).parents[1] / "data" / "base"


@pytest.fixture(scope="session")
def base() -> str:
    """The folder of the tiny base policy."""
    return str(BASE)


@pytest.fixture(scope="session")
def make_adapter(base):
    """Writes an adapter on the base that is not the identity, `folder/adapter`."""

    def make(folder: Path, *, rank: int = 4, noise: float = 0.01, version: int = 3) -> Path:
        from peft import get_peft_model

        from tracewheel.config import LoraConfig, PolicyConfig
        from tracewheel.policy.adapters import peft_config, write_adapter
        from tracewheel.policy.loading import load_base

        torch.manual_seed(11)
        model = get_peft_model(load_base(PolicyConfig(), base), peft_config(LoraConfig(rank=rank, alpha=2 * rank)))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(0.0, noise)
        write_adapter(model, folder / "adapter", "default", base, version=version)
        return folder / "adapter"

    return make


@pytest.fixture(scope="session")
def prefect_database(tmp_path_factory):
    """Copies an empty Prefect database to a path. Its migrations take five seconds of CPU, so one test process makes it."""
    from prefect.server.database import provide_database_interface
    from prefect.server.database.dependencies import temporary_database_interface
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, temporary_settings

    own = tmp_path_factory.getbasetemp()
    empty = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "prefect-empty.db"
    with FileLock(f"{empty}.lock"):
        if not empty.exists():
            made = own / "prefect-making.db"
            url = {PREFECT_API_DATABASE_CONNECTION_URL: f"sqlite+aiosqlite:///{made}"}
            with temporary_database_interface(), temporary_settings(url):
                asyncio.run(provide_database_interface().create_db())
            copy_database(made, empty)

    def copy(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(empty, path)
        return path

    return copy


def copy_database(path, to):
    """A copy of an SQLite database at one moment: a copy of the file alone lacks what is in its write-ahead log."""
    with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(to)) as out:
        database.backup(out)


@pytest.fixture(scope="session")
def prefect_harness(prefect_database, tmp_path_factory):
    """One temporary Prefect server and database for all tests that run tasks or flows."""
    from prefect.testing import utilities

    folder = prefect_database(tmp_path_factory.mktemp("prefect") / "prefect-test.db").parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utilities, "mkdtemp", lambda: str(folder))  # where the harness keeps its database
        with utilities.prefect_test_harness(server_startup_timeout=300):
            yield


class ChatServer:
    """A real HTTP server with the chat completions protocol; `answer` gets (body, number) of each request.

    It returns a message, (status, headers, body) for anything else, or None to drop the connection. A message may also
    hold `finish_reason`, `usage`, `headers`, and what vLLM's server adds: `prompt_token_ids`, `token_ids` and
    `logprobs` (of each token), which come only when the request asks for them. A request that breaks the
    protocol gets status 400, as it would elsewhere. `requests` holds (headers, body).
    """

    def __init__(self, answer):
        self.requests = []
        self.open_now, self.most_open = 0, 0
        self.clock_ahead = 0.0
        self._answer, self._lock = answer, threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer.requests.append((dict(self.headers), body))
                    number = len(outer.requests) - 1
                    outer.open_now += 1
                    outer.most_open = max(outer.most_open, outer.open_now)
                try:
                    self._reply(outer._respond(self.path, body, number))
                except BrokenPipeError:
                    pass  # the client has given up
                finally:
                    with outer._lock:
                        outer.open_now -= 1

            def _reply(self, response):
                if response is None:
                    self.close_connection = True
                    return
                status, headers, said = response
                data = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(data)

            def date_time_string(self, timestamp=None):
                return super().date_time_string((timestamp or time.time()) + outer.clock_ahead)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _respond(self, path, body, number):
        if path != "/v1/chat/completions":
            return 404, {}, {"detail": "Not Found"}
        if broken := self._broken(body):
            return 400, {}, {"error": {"message": broken, "type": "invalid_request_error"}}
        answer = self._answer(body, number)
        if not isinstance(answer, dict):
            return answer
        answer = dict(answer)
        reason = answer.pop("finish_reason", "tool_calls" if answer.get("tool_calls") else "stop")
        usage = answer.pop("usage", {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
        headers = answer.pop("headers", {})
        prompt_ids, token_ids, logprobs = (answer.pop(name, None) for name in ("prompt_token_ids", "token_ids", "logprobs"))
        wants_ids = body.get("return_token_ids", False)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": None, **answer},
            "logprobs": {"content": [{"token": "?", "logprob": p, "bytes": None, "top_logprobs": []} for p in logprobs]}
            if body.get("logprobs") and logprobs is not None
            else None,
            "finish_reason": reason,
            "stop_reason": None,
            "token_ids": token_ids if wants_ids else None,
        }
        known = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": body["model"]}
        added = {"prompt_logprobs": None, "prompt_token_ids": prompt_ids if wants_ids else None}
        return 200, headers, {**known, "choices": [choice], "usage": usage, **added}

    @staticmethod
    def _broken(body):
        """The first violation of the protocol: fields, roles, and a reply to each call by its id before any other message."""
        if not isinstance(body.get("model"), str) or not body.get("messages"):
            return "'model' and 'messages' are required"
        waiting = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting or not isinstance(message["content"], str):
                    return "a tool message answers no call"
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                return f"calls without a reply: {waiting}"
            waiting = [call["id"] for call in message.get("tool_calls", [])]
            if any(not isinstance(call["function"]["arguments"], str) for call in message.get("tool_calls", [])):
                return "arguments are JSON text"
            if message["role"] not in ("system", "user", "assistant"):
                return f"no role {message['role']}"
            if not waiting and not isinstance(message.get("content"), str):
                return "a message without calls has text"
        return f"calls without a reply: {waiting}" if waiting else ""


@pytest.fixture
def chat_server():
    """Start chat servers: `chat_server(answer)`."""
    servers = []

    def start(answer):
        servers.append(ChatServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
