"""What can be told of a profile in seconds, before anything is trained: classes, logs, replays, verifier, prompts, base."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import TracewheelError
from tracewheel.core.own_code import described, named
from tracewheel.operations.preflight import logs, policies, replays, worlds
from tracewheel.operations.preflight.line import Line, Looked
from tracewheel.traces.redaction.redactor import Redactor

__all__ = ["Line", "preflight"]


def preflight(config: RetrainConfig) -> Iterator[Line]:
    """Check a profile on its first logs, the model itself left out; each line as soon as it is known.

    What is wrong is said with names of files and parts of records, so that is redacted as the logs are.
    """
    redactor = functools.cache(lambda: Redactor(config.ingest.redaction))
    for line in _lines(config):
        if line.state in ("warning", "error"):
            line = replace(line, says=redactor().record_bytes(line.says.encode())[0].decode())
        yield line


def _lines(config: RetrainConfig) -> Iterator[Line]:
    looked = Looked(config)
    checks: dict[str, Callable[[Looked], Iterator[Line]]] = {
        "environment": worlds.check_environment,
        "verifiers": policies.check_verifiers,
        "advantage": policies.check_advantage,
        "logs": logs.check_logs,
        "late outcomes": logs.check_late_outcomes,
        "replays": replays.check_replays,
        "made-up calls": worlds.check_made_up_calls,
        "threads": worlds.check_threads,
        "components": worlds.check_components,
        "probes": worlds.check_probes,
        "reward": worlds.check_reward,
        "base": policies.check_base_policy,
        "template": policies.check_template,
        "prompts": policies.check_room,
    }
    for name, check in checks.items():
        try:
            yield from check(looked)
        except TracewheelError as error:
            yield Line(name, "error", str(error))
        except Exception as error:  # a user's class may raise anything
            if described(error) is None:
                raise
            yield Line(name, "error", named(error))
