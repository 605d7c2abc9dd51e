"""How environments of a user run: coroutines on one event loop, resources that episodes share, and a limit of open episodes."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any, Protocol, runtime_checkable

from tracewheel.core.errors import ConfigError
from tracewheel.core.kinds import Kind, args_model, parse_kind

CHECK_SECONDS = 0.1
LIMIT, NOISE_SEED = "max_concurrent", "noise_seed"
METHODS = ("reset", "step", "reply", "snapshot", "close", "opening", "task_from_log")


@runtime_checkable
class SharesResources(Protocol):
    """Optional protocol of an environment's class: something that its episodes share, as a server or a connection.

    `setup` is called once in a process for each kind with its arguments (without `noise_seed`, which changes with the
    iteration), before the first episode; what it returns is the attribute `resources` of each instance. `close_resources` gets
    it at the end of the process. Both may be coroutines.
    """

    @classmethod
    def setup(cls, args: Any) -> Any:
        """Make what is shared. `args` is the model of the arguments, or a dictionary for a class without `Args`."""
        ...

    @classmethod
    def close_resources(cls, resources: Any) -> None:
        """Close it."""
        ...


class _Loop:
    """The event loop for coroutines of environments, in a thread of its own: what they share is bound to one loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="environments", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine; the thread that waits for it may be given up, which cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            # Not one long wait: a thread hears that it is given up only between two steps of Python.
            while not wait([future], CHECK_SECONDS).done:
                pass
            return future.result()
        finally:
            if not future.done():
                future.cancel()


_lock = threading.Lock()
_loop: _Loop | None = None
_resources: dict[str, tuple[type, Any]] = {}
_making: dict[str, threading.Lock] = {}


def settled(value: Any) -> Any:
    """A value, or the result of the coroutine that it is."""
    global _loop
    if not inspect.iscoroutine(value):
        return value
    with _lock:
        _loop = _loop or _Loop()
    return _loop.run(value)


def awaited(environment: Any) -> None:
    """Give an environment's asynchronous methods the form of plain ones, which wait for their results."""
    for name in METHODS:
        method = getattr(environment, name, None)
        if inspect.iscoroutinefunction(method):
            setattr(environment, name, _waiting(method))


def _waiting(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    return functools.wraps(method)(lambda *given, **more: settled(method(*given, **more)))


def share_resources(environment: Any, spec: str) -> None:
    """Give an environment the resources of its kind, made now if this is the first.

    Args:
        environment: An instance whose class may be one that `SharesResources`.
        spec: Its kind with arguments, as text.

    Raises:
        Exception: whatever `setup` raises; the next episode tries again.
    """
    kind: Any = type(environment)
    if not isinstance(kind, type) or not issubclass(kind, SharesResources):
        return
    named, args = parse_kind(spec)
    spec = Kind(named, {name: value for name, value in args.items() if name != NOISE_SEED}).text
    with _lock:
        making = _making.setdefault(spec, threading.Lock())
    with making:  # of this kind only: another's setup may take long
        if spec not in _resources:
            if not _resources:
                Finalize(None, close_resources, exitpriority=10)  # also at the end of a pool's process, unlike `atexit`
            _resources[spec] = (kind, settled(kind.setup(arguments_of(kind, spec))))
        environment.resources = _resources[spec][1]


def arguments_of(found: type, spec: str) -> Any:
    """The arguments in a kind's text: of the class's model where it has one, else a dictionary."""
    args, model = parse_kind(spec).args, args_model(found)
    return model.model_validate(args) if model else args


@functools.lru_cache(maxsize=64)
def most_open(found: type, spec: str) -> int | None:
    """How many episodes of a kind may be open at once in a process: `max_concurrent` of its arguments or its class."""
    model = args_model(found)
    args = parse_kind(spec).args if model is None or LIMIT not in model.model_fields else vars(arguments_of(found, spec))
    limit = args.get(LIMIT) or getattr(found, LIMIT, None)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ConfigError(f"environment '{parse_kind(spec).kind}': {LIMIT} is {limit!r}; it is a number from 1")
    return limit


def close_environment(environment: Any) -> None:
    """Close an environment that has a `close`; how its episode ended is known already, so that a failure changes nothing."""
    close = getattr(environment, "close", None)
    if callable(close):
        with suppress(Exception):  # anyone's code
            close()


def close_resources() -> None:
    """Close all resources of this process; a failure of one does not keep the others open. They may be made again."""
    while _resources:
        _, (kind, resources) = _resources.popitem()
        with suppress(Exception):  # anyone's code, at an end where nobody is left to hear of it
            settled(kind.close_resources(resources))  # type: ignore[attr-defined]


def _forget() -> None:
    """A forked process has neither its parent's loop nor its connections."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()
    _resources.clear()
    _making.clear()


os.register_at_fork(after_in_child=_forget)
