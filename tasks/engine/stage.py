"""How a stage of the domain becomes a Prefect task whose result is an entry of the store.

The key of a result is the content of everything it is made from: the profile's sections that the
stage reads, each argument, the stage's code and the packages that compute it. Prefect caches by the same
key, but only while the store holds the entry, so a deleted or damaged one is made again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from tasks.engine.kinds import code_of
from tasks.engine.run import Reporter, Run, describe, named, settings_for
from tracewheel.config import RetrainConfig, Sections
from tracewheel.core import stopping
from tracewheel.core.errors import InputError, TimeLimitError
from tracewheel.core.fingerprint import NUMERIC_PACKAGES, code_parts, package_versions
from tracewheel.core.machine import give_back
from tracewheel.core.progress import Listener, listening
from tracewheel.core.store import BESIDE, Entry
from tracewheel.core.time_limits import stage_limit
from tracewheel.core.types import content_hash
from tracewheel.policy.adapters import adapter_digests
from tracewheel.scoring.world_code import Code

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State, TaskRun

P = ParamSpec("P")
S = TypeVar("S", bound=Sections)
RETRIES = 2
RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Context(Generic[S]):
    """What a stage works with.

    Attributes:
        config: The profile's sections that it reads.
        out: The folder it writes to.
        reporter: Shows its progress.
        reuse: A folder of results of earlier runs, on which no output depends; None for a stage by hand.
        notes: A folder for notes about the output that are no part of it; None for a stage by hand.
    """

    config: S
    out: Path
    reporter: Reporter
    reuse: Path | None = None
    notes: Path | None = None


class Call:
    """One call of a stage. A plain object, so that Prefect passes it on without walking through it."""

    def __init__(self, run: Run, key: str, label: str, arguments: dict[str, Any]) -> None:
        self.run = run
        self.key = key
        self.label = label
        self.arguments = arguments

    def stored(self, stage: str) -> Entry | None:
        """The stored entry, None when the stage has yet to run, or again because what it made is damaged."""
        found, name = self.run.store.find(stage, self.key), f"{stage}-{self.key}"
        if found is None and name in self.run.store.flaws:
            self.run.is_damaged(name, self.run.store.flaws[name])
        return found


@dataclass(eq=False)
class StageTask(Generic[P]):
    """One stage of the domain, as flows call it.

    Attributes:
        function: Takes the context and the stage's arguments; returns JSON types.
        stage: Name of the stage in the store.
        code: The domain module that does the work.
        sections: The sections of the profile that the stage reads.
        packages: Packages that its result depends on, in addition to those that all stages use.
        reads: The arguments for the key, of a stage that reads a part of one only; by default all of them.
    """

    function: Callable[..., Any]
    stage: str
    code: str
    sections: type[Sections]
    packages: tuple[str, ...] = ()
    reads: Callable[[dict[str, Any]], dict[str, Any]] = dict

    @functools.cached_property
    def task(self) -> Any:
        """The Prefect task."""
        import prefect

        return prefect.Task(
            self.fn,
            name=self.function.__name__,
            description=self.function.__doc__,
            retries=RETRIES,
            retry_delay_seconds=RETRY_SECONDS,
            retry_condition_fn=_may_pass,
            persist_result=True,
            result_serializer="json",
            cache_key_fn=_cache_key,
        )

    def __call__(self, run: Run, *args: P.args, **kwargs: P.kwargs) -> Entry:
        """The stage's entry, as the run's driver obtains it: reused, or made now."""
        assert not args, "stages take their arguments by name"
        call = Call(run, self.key(run, kwargs), self.label(run, kwargs), kwargs)
        run.record.need(f"{self.stage}-{call.key}")
        entry = run.driver.get(self, call)
        run.used.add(entry)
        return entry

    def make_entry(self, call: Call, listener: Listener | None = None) -> Entry:
        """Make the entry of a call; the listener, by default the run's reporter, is told how far it is.

        Raises:
            TimeLimitError: it took longer than `stage_seconds`.
        """

        def produce(out: Path) -> Any:
            try:
                with (
                    listening(listener or call.run.reporter.move),
                    stage_limit(call.run.config.seconds_for(self.stage), call.label),
                ):
                    return self.function(self._context(call.run, out, stored=True), **call.arguments)
            finally:
                give_back()

        return call.run.store.make(self.stage, call.key, produce, lambda out: self.facts(call, out))

    def fn(self, call: Call) -> dict[str, Any]:
        """The Prefect task's body: the entry as JSON types."""
        from tasks.engine.artifacts import StageProgress

        progress = StageProgress(self.stage, call.run.reporter.move)
        entry = self.make_entry(call, progress.reached)
        progress.ended()
        return {**asdict(entry), "path": entry.path.name}

    def make(self, run: Run, out: Path, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Write the stage's output to a folder, without the store; returns what the stage returns."""
        return self.function(self._context(run, out), *args, **kwargs)

    def _context(self, run: Run, out: Path, *, stored: bool = False) -> Context[Any]:
        kept = (run.store.reuse, out / BESIDE) if stored else (None, None)
        return Context(self.sections.of(run.config), out, run.reporter, *kept)

    def key(self, run: Run, arguments: dict[str, Any]) -> str:
        """Hash of everything the result depends on."""
        read = {name: describe(value) for name, value in sorted(self.reads(arguments).items())}
        return content_hash({"settings": self.settings(run.config), **self.made_by(run.config), "arguments": read})

    def facts(self, call: Call, out: Path) -> dict[str, Any]:
        """What an entry was made from and with, for its metadata.

        `label` and `run` are those of the first run that made it; `arguments` names entries of the store, policies and digests;
        `settings`, `code` (both as hashes, of what the store keeps of them) and `packages` are the rest of its key. `adapter`
        has the digest of the folder of an adapter and of its weights' file.
        """
        config, store = call.run.config, call.run.store
        return {
            "label": call.label,
            "run": call.run.record.run_id,
            "arguments": {name: named(value) for name, value in call.arguments.items()},
            "settings": store.keep(self.settings(config)),
            "code": store.keep(self.code_parts(config)),
            "packages": self.package_versions(),
            **adapter_digests(out),
        }

    def settings(self, config: RetrainConfig) -> dict[str, Any]:
        """The settings that its results depend on."""
        return settings_for(config, self.sections.keyed())

    def code_of(self, config: RetrainConfig) -> Code:
        """The modules whose closures its results depend on."""
        return code_of([self.code], config, self.sections.keyed())

    def code_parts(self, config: RetrainConfig) -> dict[str, str]:
        """The code that its results depend on: the hash of each file, by module."""
        modules, plugins = self.code_of(config)
        return code_parts(*modules, plugins=plugins)

    def package_versions(self) -> dict[str, str]:
        """The versions of the packages that its results depend on."""
        return package_versions(NUMERIC_PACKAGES + self.packages)

    def made_by(self, config: RetrainConfig) -> dict[str, Any]:
        """Versions of the code and of the packages that compute it."""
        return {"code": content_hash(self.code_parts(config)), "packages": self.package_versions()}

    def label(self, run: Run, arguments: dict[str, Any]) -> str:
        """The name of a call: the stage, and what distinguishes it from its siblings."""
        if "iteration" in arguments:
            refill = f", refill {arguments['refill']}" if arguments.get("refill") else ""
            return f"{self.stage} {arguments['iteration']} of {run.config.training.iterations}{refill}"
        policy = [arguments["policy"].name] if "policy" in arguments else []
        return " ".join([self.stage, *policy, *(arguments[name] for name in ("demonstrations", "split") if name in arguments)])


def stage_task(
    stage: str,
    *,
    code: str,
    sections: type[S],
    packages: tuple[str, ...] = (),
    reads: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Callable[[Callable[Concatenate[Context[S], P], Any]], StageTask[P]]:
    """Decorator: make a function that calls one stage of the domain a `StageTask`."""

    def decorate(function: Callable[Concatenate[Context[S], P], Any]) -> StageTask[P]:
        return StageTask(function, stage, code, sections, packages, reads)

    return decorate


def _cache_key(context: Any, parameters: dict[str, Any]) -> str:
    call: Call = parameters["call"]
    return f"{content_hash(str(call.run.store.root.resolve()))}-{context.task.name}-{call.key}"


def _may_pass(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Whether to retry: not when the user's input is at fault, nor what would take as long again, nor when asked to stop."""
    return not stopping.requested() and not isinstance(state.result(raise_on_failure=False), InputError | TimeLimitError)
