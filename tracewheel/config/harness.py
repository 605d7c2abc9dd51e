"""How a program that brings its own loop is started for each episode."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tracewheel.config.base import Count, Positive, Strict

# Variables that a program is given by the harness itself.
OWN_VARIABLES = frozenset({"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "TMPDIR"})
OWN_PREFIX = "TRACEWHEEL_"
PYTHONS = ("python", "python3")


class HarnessConfig(Strict):
    """A program that is an agent, started once for each episode.

    `command` is run in the folder `cwd` (null: where Tracewheel was started); `python` as its first word is the interpreter
    that runs Tracewheel, any other name is looked up on the PATH. The program gets a few harmless variables of our
    environment, those that `pass_env` names, those in `env`, and the base URLs and keys of its episode. `code` names the files
    and folders that the program is made of, by default the files that the command names: a change in them is a change of the
    profile.

    `task_on`: where the program finds its task, as JSON: on its standard input, in a file (`TRACEWHEEL_TASK_FILE`) or in a
    variable (`TRACEWHEEL_TASK`). `tools`: how the episode's environment is served beside it, over HTTP or MCP; with `none` the
    program has its own tools, no environment is made, and verifiers see only what the program says.

    `concurrency` programs run at once, each for at most `seconds`, with at most `max_requests` requests to the model and,
    where `memory_mb` is set, that much address space. Of what it prints the last 64 KiB are kept. With `preload`,
    Python modules are imported once, and each program starts as a fork of that process: it saves an agent on a large SDK most
    of its start.

    `credit`: which of an episode's branches its reward reaches: all, the one of the last turn, or by agent.
    """

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    cwd: str | None = None
    env: dict[str, str] = Field(default={})
    pass_env: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    task_on: Literal["stdin", "file", "env"] = "stdin"
    tools: Literal["none", "http", "mcp"] = "http"
    credit: Literal["all", "last", "per_agent"] = "all"
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    seconds: Positive = 600.0
    max_requests: Count = 200
    memory_mb: Count | None = None
    preload: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> HarnessConfig:
        if own := sorted(name for name in [*self.env, *self.pass_env] if name in OWN_VARIABLES or name.startswith(OWN_PREFIX)):
            raise ValueError(f"env and pass_env cannot set {', '.join(own)}: the harness does, for each episode")
        if bad := sorted(name for name in [*self.env, *self.pass_env] if not name or "=" in name or "\0" in name):
            raise ValueError(f"env and pass_env: {bad[0]!r} is no name of a variable")
        if any("\0" in text for text in [*self.command, *self.env.values()]):
            raise ValueError("command and env cannot hold NUL characters")
        if self.preload and not self.python_program:
            raise ValueError(
                "preload forks a Python process: it needs a command as [python, FILE.py, ...] or [python, -m, MODULE, ...]"
            )
        return self

    @property
    def python_program(self) -> bool:
        """Whether the command is an interpreter of Python with a script or a module, and no options before it."""
        name = self.command[0].rpartition("/")[2]
        if not name.startswith("python") or len(self.command) < 2:
            return False
        return len(self.command) > 2 if self.command[1] == "-m" else not self.command[1].startswith("-")
