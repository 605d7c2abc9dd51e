"""The environment `nemo_gym`: a resources server of NeMo Gym, through its HTTP protocol."""

from __future__ import annotations

import json
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, Field

from tracewheel import BridgeFailure, DataError, Observation, Task, content_hash


class NemoGymEnvironment:
    """The tools of a resources server that runs at `url`; a session of its own for each episode.

    ```yaml
    environment: {kind: nemo_gym, args: {url: "http://localhost:8000"}}
    ```

    A task's `initial_state` is `{"row": a line of the server's data set}`. The row's tools are the episode's, a call is a POST
    to the tool's name, and at the end `/verify` gets the row with what the agent did. Its reward is the state's `verdict`.
    The agent's first turn without a call is its answer and ends the episode.
    """

    class Args(BaseModel):
        """Where the server runs, and how many seconds a request may take."""

        model_config = ConfigDict(frozen=True, extra="forbid")

        url: str
        step_seconds: float = Field(60.0, gt=0)
        system_prompt: str = ""

    kind = "nemo_gym"
    tool_threads = 64  # servers answer when they answer
    verifiers = ("verdict",)
    reaches = True

    def __init__(self, args: Args) -> None:
        self._args = args
        self.system_prompt = args.system_prompt
        self._client: httpx.Client | None = None
        self._row: dict[str, Any] = {}
        self._output: list[dict[str, Any]] = []

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        start = logged.get("initial_state")
        if not isinstance(start, dict) or not isinstance(start.get("row"), dict):
            raise DataError("'initial_state.row' is to be a line of the server's data set")
        return self.task_of(start["row"], prompt, str(logged.get("family") or self.kind))

    def task_of(self, row: dict[str, Any], prompt: str = "", family: str = "nemo_gym") -> Task:
        """The task of a line of the server's data set.

        Raises:
            DataError: it has no `responses_create_params` with a user's message.
        """
        said = _input(row)
        prompt = prompt or "\n\n".join(text for role, text in said if role == "user")
        if not prompt:
            raise DataError("the row's 'responses_create_params.input' has no message of a user")
        name = content_hash([self.kind, row])
        return Task(
            id=f"{self.kind}-{name}",
            environment=self.kind,
            family=family,
            tier=1,
            prompt=prompt,
            initial_state={"row": row},
            goal={},
            verifier="verdict",
            fingerprint=name,
        )

    def tools(self) -> list[dict[str, Any]]:
        found = self._row.get("responses_create_params", {}).get("tools") or []
        named = [
            {name: tool.get(name) or "" for name in ("name", "description")} | {"parameters": tool.get("parameters") or {}}
            for tool in found
        ]
        return [{"type": "function", "function": tool} for tool in named]

    def reset(self, task: Task) -> None:
        """Begin a session.

        Raises:
            BridgeFailure: the server does not answer, or refuses the row.
        """
        self.close()
        self._client = httpx.Client(base_url=self._args.url, timeout=self._args.step_seconds)
        self._row, self._output = task.initial_state["row"], []
        system = "\n\n".join(text for role, text in _input(self._row) if role in ("system", "developer"))
        self.system_prompt = system or self._args.system_prompt
        self._ok(self._post("/seed_session", self._row), "seed_session")

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if tool not in [one["function"]["name"] for one in self.tools()]:
            return self._log(tool, args, f"error: no tool named {tool[:64]}", error=True)
        try:
            reply = self._post(f"/{tool}", args)
        except BridgeFailure as failure:
            return Observation(str(failure), error=True, fault="environment")
        if reply.status_code >= 500:
            return Observation(
                f"{tool}: the server failed with {reply.status_code}: {reply.text[:400]}", error=True, fault="environment"
            )
        return self._log(tool, args, reply.text, error=reply.status_code >= 400)

    def reply(self, text: str) -> Observation:
        """The answer, which ends the episode."""
        content = [{"type": "output_text", "text": text, "annotations": []}]
        made = {"id": f"msg_{len(self._output)}", "type": "message", "role": "assistant", "status": "completed"}
        self._output.append({**made, "content": content})
        return Observation("", done=True)

    def snapshot(self) -> dict[str, Any]:
        """The server's verdict of the episode.

        Raises:
            BridgeFailure: it gives none.
        """
        response = {
            "id": "resp_0",
            "object": "response",
            "created_at": 0,
            "model": "policy",
            "output": self._output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": self._row["responses_create_params"].get("tools") or [],
        }
        said = self._ok(self._post("/verify", {**self._row, "response": response}), "verify").json()
        parts = said.get("reward_components") or {}
        return {"state": {}, "verdict": {"reward": said.get("reward"), "parts": parts}}

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        if self._client is None:
            raise BridgeFailure("no session runs: `reset` has not been called, or it failed")
        try:
            return self._client.post(path, json=body)
        except httpx.HTTPError as error:
            raise BridgeFailure(f"NeMo Gym server {self._args.url}{path}: {type(error).__name__}: {error}") from error

    def _ok(self, reply: httpx.Response, what: str) -> httpx.Response:
        if reply.status_code != 200:
            raise BridgeFailure(f"NeMo Gym server {self._args.url}: {what} gave {reply.status_code}: {reply.text[:400]}")
        return reply

    def _log(self, tool: str, args: dict[str, Any], text: str, *, error: bool) -> Observation:
        call_id = f"call_{len(self._output)}"
        written = json.dumps(args, ensure_ascii=False)
        self._output.append(
            {"id": f"fc_{len(self._output)}", "type": "function_call", "call_id": call_id, "name": tool, "arguments": written}
        )
        self._output.append({"type": "function_call_output", "call_id": call_id, "output": text})
        return Observation(text, error=error)


def _input(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The row's messages as (role, text)."""
    given = (row.get("responses_create_params") or {}).get("input") or []
    if isinstance(given, str):
        return [("user", given)]
    return [(str(one.get("role")), _words(one.get("content"))) for one in given if isinstance(one, dict)]


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or [] if isinstance(part, dict))
