"""Work that takes time, in threads beside the server's loop; a request has one piece of it at a time, whatever it asks for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")
_TURNSTILE: ContextVar[asyncio.Lock] = ContextVar("turnstile")


def begin_request() -> None:
    """From here on the work of this task, and of those that it begins, is one request's."""
    _TURNSTILE.set(asyncio.Lock())


async def off_loop(work: Callable[Given, Made], *given: Given.args, **named: Given.kwargs) -> Made:
    """What `work` returns or raises."""
    async with _TURNSTILE.get(None) or contextlib.nullcontext():
        return await asyncio.to_thread(work, *given, **named)
