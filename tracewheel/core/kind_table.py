"""Tables of kinds: a name to the place of its class, imported when it is named. Wheels add theirs by entry points.

A kind is a built-in name or `module:Class`. Importing a module runs its code, so that a kind in data is made only where it is
built in, or where the user named it: in a profile or on the command line.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tracewheel.core.errors import ConfigError
from tracewheel.core.types import canonical_json

OWN_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
VARIABLE = "TRACEWHEEL_GIVEN_KINDS"  # worker processes inherit it: they may make what their parent may
_silent: ContextVar[bool] = ContextVar("the profile of a stored run is read", default=False)


def give(kind: str, *others: str) -> str:
    """The user has named these kinds, as text: they may be made, with the kinds in their arguments. Returns the first."""
    known = _given()
    texts = (_short(text) for named in (kind, *others) for text in (named, *inner_kinds(named)))
    new = [text for text in texts if text not in known]
    if new and not _silent.get():
        os.environ[VARIABLE] = json.dumps([*known, *dict.fromkeys(new)])
    return kind


def give_changed(kind: str, changed: str) -> str:
    """A kind that we made of another: it may be made if that one may. A bare built-in name was never needed."""
    return give(changed) if is_given(kind) and not kind.isidentifier() else changed


@contextmanager
def naming_nothing() -> Iterator[None]:
    """Read the profile of a stored run: what it names, its author named and not the user."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def naming_kinds() -> bool:
    """Whether what is read now names kinds for the user: not so in the profile of a stored run."""
    return not _silent.get()


def is_given(kind: str) -> bool:
    """Whether the user named this kind with these very arguments."""
    return _short(kind) in _given()


def may_import(name: str) -> bool:
    """Whether the user named `module:Class`, or another class of its module or, for `package.module`, of its package."""
    module = name.partition(":")[0]
    for given in _given():
        own = given.partition(":")[0]
        package = own.rpartition(".")[0] or own
        if OWN_CLASS.fullmatch(given) and (module == package or module.startswith(f"{package}.")):
            return True
    return False


def inner_kinds(text: str) -> Iterator[str]:
    """The kinds that a kind's text holds, each by name and with its arguments."""
    waiting: list[Any] = [json.loads(text)] if text.startswith("{") else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            kind, args = value.get("kind"), value.get("args")
            if isinstance(kind, str):
                yield kind
                if isinstance(args, dict) and args:
                    yield canonical_json({"kind": kind, "args": args})
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _short(text: str) -> str:
    """A kind as the variable holds it, which the system allows 128 KiB: arguments as a hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] if text.startswith("{") else text


def _given() -> list[str]:
    found: list[str] = json.loads(os.environ.get(VARIABLE) or "[]")
    return found


WORLDS, BRIDGES, LAB, LOGS = "tracewheel-worlds", "tracewheel-bridges", "tracewheel-lab", "tracewheel-logs"
SOURCES, WEB, GRADERS = "tracewheel-sources", "tracewheel-web", "tracewheel-graders"
PROMPTS, SCREENING, SELFPLAY = "tracewheel-prompts", "tracewheel-screening", "tracewheel-selfplay"
SPOKEN, WRITTEN = "tracewheel-dialects", "tracewheel-formats"
_LOG_FORMATS = (
    "acp", "agentdojo", "ai_studio", "amp", "anthropic", "antigravity", "atif", "autogen", "bedrock", "bfcl",
    "braintrust", "chat_lines", "chatgpt", "claude_code", "claude_export", "codex", "codex_exec", "copilot_cli",
    "cursor", "droid", "droid_stream", "elsewhere", "gemini", "gemini_cli", "google_adk", "goose", "grok",
    "grok_export", "hermes", "inspect", "kimi", "kiro", "kiro_ide", "langchain", "langfuse", "langgraph", "langsmith",
    "mini_swe_agent", "mlflow", "openai_agents", "openai_responses", "opencode", "opencode_run", "openhands",
    "openinference", "otel", "pi", "promptfoo", "pydantic_ai", "qwen_code", "requests", "sharegpt", "smolagents",
    "strands", "sweagent", "table", "tau2", "tau_bench", "toolbench", "vercel_ai", "weave", "xlam",
)  # fmt: skip
# By sort, as `load_class` names it: kind -> the distribution that holds it.
WHEELS: dict[str, dict[str, str]] = {
    "environment": {
        **dict.fromkeys(("assistant", "code", "harbor", "math", "patch", "retrieval", "terminal"), WORLDS),
        **dict.fromkeys(("bfcl", "nemo_gym", "openenv", "reasoning_gym", "verifiers"), BRIDGES),
        **dict.fromkeys(("miniwob", "shop", "webapp"), WEB),
        "proposals": SELFPLAY,
        "prompted": PROMPTS,
    },
    "verifier": {
        **dict.fromkeys(("assistant", "check_script", "final_files", "harbor", "math", "patch_tests", "unit_tests"), WORLDS),
        **dict.fromkeys(("budget", "json_equal", "judge", "length", "process_checks", "relative_judge", "sql_result"), GRADERS),
        "reward_model": LAB,
        **dict.fromkeys(("learnable", "majority"), SELFPLAY),
    },
    "log format": {**dict.fromkeys(_LOG_FORMATS, LOGS), **dict.fromkeys(("osworld", "playwright_trace"), WEB)},
    "log file": {"eval": LOGS},
    "reader": {"mapping": LOGS},
    "audit": {"graders": GRADERS},
    "dialect": dict.fromkeys(("anthropic", "gemini", "responses"), SPOKEN),
    "section": {"prompt": PROMPTS},
    "screen": {"screening": SCREENING},
    "source": dict.fromkeys(("az", "gs", "langfuse", "mlflow", "s3"), SOURCES),
    "tool format": dict.fromkeys(("deepseek", "gpt_oss", "llama3_json", "mistral", "qwen3_coder"), WRITTEN),
    "world": {**dict.fromkeys(("assistant", "mixed", "retrieval"), WORLDS), "miniwob": WEB},
}


def how_to_get(what: str, kind: str) -> str | None:
    """How a kind of a wheel is installed; None for a kind of no wheel."""
    wheel = WHEELS.get(what, {}).get(kind)
    return wheel and f"not installed: pip install {wheel} (in a checkout: make setup-plugins)"


def search_working_folder() -> None:
    """Let Python import modules of the working folder too, after all others: an installed `tracewheel` would not."""
    folder = os.getcwd()
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)


def load_class(name: str, built_in: Mapping[str, type], what: str) -> type:
    """Find a class by name.

    Args:
        name: A key of `built_in`, or `module:Class` to import, if the user named it.
        built_in: The classes that ship with Tracewheel.
        what: The kind of class, for the error message.

    Raises:
        ConfigError: `name` is neither, or only data names it.
    """
    if name in built_in:
        return built_in[name]
    if ":" not in name:
        if how := how_to_get(what, name):
            raise ConfigError(f"{what} '{name}' is {how}")
        raise ConfigError(
            f"no {what} is called '{name}'; built in: {', '.join(sorted(built_in))}; name your own as 'module:Class'"
        )
    if not may_import(name):
        raise ConfigError(
            f"{what} '{name}' is not named in the profile, and data imports nothing: if you trust it, name it there (a task's "
            "verifier in environment.verifiers)"
        )
    found = import_class(name, what)
    # Of a package that the user named, data may choose among its classes, not among all that its modules import.
    if not is_given(name) and not (isinstance(found, type) and may_import(f"{found.__module__}:{found.__name__}")):
        raise ConfigError(f"{what} '{name}' is no class of that module: if you trust it, name it in the profile")
    return found


def import_class(name: str, what: str) -> type:
    """Import `module:Class`, a name from our own code or one that the user gave.

    Raises:
        ConfigError: there is no such class.
    """
    module_name, _, class_name = name.partition(":")
    search_working_folder()
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{what} '{name}' cannot be imported: {error}. Modules of your own are found in installed packages, in PYTHONPATH "
            f"and in the folder that you start from, here {os.getcwd()}"
        ) from error
    try:
        found: type = getattr(module, class_name)
    except AttributeError as error:
        place = getattr(module, "__file__", None) or "a module without a file"
        near = difflib.get_close_matches(class_name, dir(module), n=1)
        meant = f"; did you mean {module_name}:{near[0]}?" if near else ""
        raise ConfigError(f"{what} '{name}' cannot be imported: {error} ({place}){meant}") from error
    return found


class KindTable(MutableMapping[str, Any]):
    """The kinds of one sort by name: those of the core, and those of installed wheels.

    Example:
        >>> table = KindTable("tracewheel.verifiers", {"format": "tracewheel.scoring.verifiers.format:FormatVerifier"})
        >>> table["format"].__name__
        'FormatVerifier'

    Args:
        group: The group of entry points in which wheels name theirs, each as `NAME = "module:Class"`.
        core: Name to `module:Class`, of the kinds that the core holds.
    """

    def __init__(self, group: str, core: Mapping[str, str]) -> None:
        self.group = group
        self._core = dict(core)
        self._set: dict[str, type] = {}

    @functools.cached_property
    def wheels(self) -> dict[str, EntryPoint]:
        """The kinds of installed wheels.

        Raises:
            ConfigError: two name the same kind, or one that the core holds.
        """
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            taken = "the core" if point.name in self._core else _package(found[point.name]) if point.name in found else None
            if taken and (taken == "the core" or found[point.name].value != point.value):
                raise ConfigError(
                    f"{self.group}: '{point.name}' of {_package(point)} is already a kind of {taken}; uninstall one of them"
                )
            found[point.name] = point
        return found

    def place(self, name: str) -> str:
        """Where a kind's class lies, as `module:Class`.

        Raises:
            KeyError: there is no such kind.
        """
        if name in self._set:
            return f"{self._set[name].__module__}:{self._set[name].__qualname__}"
        return self._core[name] if name in self._core else self.wheels[name].value

    def __getitem__(self, name: str) -> Any:
        if name in self._set:
            return self._set[name]
        return import_class(self.place(name), self.group.rpartition(".")[2].removesuffix("s"))

    def __setitem__(self, name: str, found: type) -> None:
        self._set[name] = found

    def __delitem__(self, name: str) -> None:
        del self._set[name]

    def __contains__(self, name: object) -> bool:  # without importing the class
        return name in self._set or name in self._core or name in self.wheels

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._core, *self._set, *self.wheels}))

    def __len__(self) -> int:
        return len({*self._core, *self._set, *self.wheels})


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
