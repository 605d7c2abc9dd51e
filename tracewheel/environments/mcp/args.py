"""The arguments of the environment `mcp`."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Call(BaseModel):
    """A call of one of the server's tools."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    arguments: dict[str, Any] = {}


class McpArgs(BaseModel):
    """Which server, and how its end state is read.

    Attributes:
        command: The server's program and its arguments; each episode starts one of its own. `{folder}` in an argument is the
            episode's folder; the program starts in an empty one.
        url: Instead, the address of a running server (streamable HTTP), which all episodes share.
        env: Variables of the program's environment. Of ours it gets only PATH, HOME and the like.
        headers: Headers of each request to `url`.
        tools: Names of the tools that the agent may use; None is all.
        state: A call whose reply, at the end, is the episode's state.
        resource: Instead, the address of a resource that is read at the end.
        start_seconds: How long the server may take to start and to list its tools.
        call_seconds: How long a call may take.
        system_prompt: What the agent is told first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    tools: tuple[str, ...] | None = None
    state: Call | None = None
    resource: str = ""
    start_seconds: float = Field(30.0, gt=0)
    call_seconds: float = Field(60.0, gt=0)
    system_prompt: str = ""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either 'command' (a server for each episode) or 'url' (a server that runs)")
        if self.state and self.resource:
            raise ValueError("give either 'state' or 'resource', or neither: then the log of the calls is the state")
        if self.headers and not self.url:
            raise ValueError("'headers' are for a server at a 'url'; a command has 'env'")
        return self
