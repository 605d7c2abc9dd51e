"""The event loop of a browser, in a thread of its own: what playwright makes is bound to one, and episodes come from many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

from tracewheel import BridgeFailure, ConfigError

Result = TypeVar("Result")
HOW = "make setup-web installs playwright and Debian's chromium"
CHECK_SECONDS = 0.1


class Loop:
    """Carries out coroutines for threads that wait for them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result], seconds: float, doing: str) -> Result:
        """The result of a coroutine.

        Raises:
            ConfigError: playwright is not installed.
            BridgeFailure: it takes longer than `seconds`, or the browser ended, hangs or raised.
        """
        try:
            from playwright.async_api import Error
        except ImportError:
            work.close()
            raise ConfigError(f"a browser needs playwright: {HOW}") from None
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop)
        try:
            # Not one long wait: a thread hears that it is given up only between two steps of Python.
            while not wait([future], CHECK_SECONDS).done:
                pass
            return future.result()
        except TimeoutError:
            raise BridgeFailure(f"browser: {doing} took longer than {seconds:g} s") from None
        except (Error, OSError) as error:
            raise BridgeFailure(
                f"browser: {doing}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            ) from error
        finally:
            if not future.done():
                future.cancel()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Have something done without waiting for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
