"""What a program is started with: its command, its variables and its task."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tracewheel.config import HarnessConfig
from tracewheel.config.rollout import PYTHONS
from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Task
from tracewheel.gateway.exchange import MODEL
from tracewheel.gateway.live_episode import LiveEpisode
from tracewheel.rollout.episode import Opened
from tracewheel.rollout.harness.box import Box, box_of
from tracewheel.rollout.harness.folders import lay_out
from tracewheel.rollout.harness.programs import ProgramStart, find_program

# Of our environment: where programs are and how texts are written. Nothing else, as it may be a secret.
HARMLESS = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_PATH",
)  # fmt: skip
# Output is not held back, so that a killed program's is kept; sets have the same order in each run; no proxy is in between.
DEFAULTS = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
TASK_FILE, RESULT_FILE = "task.json", "result.json"
WORKDIR, CONFIG = "workdir", "config"  # folders of an episode, and what stands for them
LONGEST_VARIABLE = 120_000  # bytes; Linux refuses a variable of over 128 KiB
MEGABYTE = 1 << 20
_PLACE = re.compile(r"\{(\w+)\}")


class Starter:
    """Starts programs as a profile says.

    Args:
        config: The profile's section.
        given: Our environment.

    Raises:
        ConfigError: there is no such program, script, folder or variable.
    """

    def __init__(self, config: HarnessConfig, given: Mapping[str, str] = os.environ) -> None:
        if missing := [name for name in config.pass_env if name not in given]:
            raise ConfigError(f"rollout.harness.pass_env: {missing[0]} is not set; set it, or leave it out")
        self._config = config
        self.base = {name: given[name] for name in HARMLESS if name in given} | DEFAULTS
        self.base |= {name: given[name] for name in config.pass_env} | config.env
        self.cwd = str(Path(config.cwd).resolve()) if config.cwd not in (None, f"{{{WORKDIR}}}") else None
        self.command = find_program(config.command, self.cwd, PYTHONS, self.base.get("PATH", os.defpath))
        self.box: Box | None = None

    @property
    def interpreter(self) -> str:
        """The Python that preloads modules; ours where nothing is preloaded."""
        return self.command[0] if self._config.preload else sys.executable

    @property
    def works_in_folder(self) -> bool:
        """Whether the program has tools of its own and is told its folder, which then holds the task's files."""
        config = self._config
        told = (config.cwd or "", *config.command, *config.env.values(), *config.files.values())
        return config.tools == "none" and any(f"{{{WORKDIR}}}" in text for text in told)

    @property
    def module_path(self) -> str:
        """Where the program looks for modules first."""
        folder = Path(self.cwd or ".")
        script = self.command[1] if len(self.command) > 1 else "-m"
        return str(folder.resolve() if script == "-m" else (folder / script).resolve().parent)

    def make_box(self, folder: Path) -> list[socket.socket]:
        """Have programs start in boxes, where the profile and the machine have them.

        Args:
            folder: For the boxes' own files.

        Returns:
            Where the gateway is to listen for them, too.
        """
        folder.mkdir()
        self.box = box_of(self._config, self.command, self.cwd, self.base, folder)
        return [self.box.listen()] if self.box else []

    def start(self, task: Task, live: LiveEpisode, opened: Opened | None, folder: Path) -> ProgramStart:
        """What to start for an episode.

        Args:
            task: The task.
            live: The episode at the gateway.
            opened: What its environment offers; None without one.
            folder: The episode's own, which it leaves files in.
        """
        config = self._config
        told = json.dumps(public_task(task, opened), ensure_ascii=False)
        file = folder / TASK_FILE
        file.write_text(told, encoding="utf-8")
        env = {
            **self.base,
            "TMPDIR": str(folder),
            "OPENAI_BASE_URL": live.openai_url,
            "OPENAI_API_KEY": live.key,
            "ANTHROPIC_BASE_URL": live.anthropic_url,
            "ANTHROPIC_API_KEY": live.key,
            "GOOGLE_GEMINI_BASE_URL": live.anthropic_url,
            "GEMINI_API_KEY": live.key,
            "TRACEWHEEL_API_KEY": live.key,
            "TRACEWHEEL_RESULT": str(folder / RESULT_FILE),
        }
        if config.task_on == "file":
            env["TRACEWHEEL_TASK_FILE"] = str(file)
        elif config.task_on == "env":
            if len(told.encode()) > LONGEST_VARIABLE:
                raise ConfigError(
                    f"rollout.harness.task_on: the task {task.id} has {len(told.encode())} bytes, too many for a variable: set "
                    "it to 'stdin' or 'file'"
                )
            env["TRACEWHEEL_TASK"] = told
        if opened is not None:
            env["TRACEWHEEL_TOOLS_URL"] = live.anthropic_url
            if config.tools == "mcp":
                env["TRACEWHEEL_MCP_URL"] = f"{live.anthropic_url}/mcp"
        own = {
            "prompt": task.prompt,
            "model": MODEL,
            "openai_url": live.openai_url,
            "anthropic_url": live.anthropic_url,
            "gemini_url": live.anthropic_url,
            "mcp_url": f"{live.anthropic_url}/mcp",
            "key": live.key,
            **{name: str(folder / name) for name in (WORKDIR, CONFIG)},
        }
        for name in (WORKDIR, CONFIG):
            (folder / name).mkdir()
        if self.works_in_folder:
            lay_out(task, folder / WORKDIR)
        for name, text in config.files.items():
            written = folder / CONFIG / name
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(_filled(text, own), encoding="utf-8")
        command = [_filled(word, own) for word in self.command]
        env = {name: _filled(value, own) if name in config.env else value for name, value in env.items()}
        cwd = self.cwd if self.cwd or not config.cwd else own[WORKDIR]
        stdin = str(file) if config.task_on == "stdin" else None
        if self.box is None:
            return ProgramStart(
                command, env, cwd, stdin, config.seconds, memory=config.memory_mb and config.memory_mb * MEGABYTE
            )
        if "HOME" not in {*config.env, *config.pass_env}:
            env["HOME"] = own[CONFIG]  # ours is not there
        boxed = self.box.command(command, folder, cwd, urlsplit(live.anthropic_url).port or 0)
        return ProgramStart(boxed, env, None, stdin, config.seconds, filter=self.box.filter)


def _filled(text: str, own: Mapping[str, str]) -> str:
    """A text with what an episode has of its own; other braces stay, and so do those in the prompt."""
    return _PLACE.sub(lambda found: own.get(found[1], found[0]), text)


def public_task(task: Task, opened: Opened | None) -> dict[str, Any]:
    """What a program may know of its task: never the goal, and nothing of the starting point but what it asks for.

    `messages` are those that our own loop would begin with: the environment's system prompt, its opening, and the request.
    """
    told: dict[str, Any] = {"id": task.id, "prompt": task.prompt}
    if opened is None:
        return {**told, "messages": [{"role": "user", "content": task.prompt}], "tools": []}
    return {**told, "messages": opened.messages, "tools": opened.tools, "replies": opened.replies}
