"""Verifiers by name. A user's own is named `module:Class` in the task or the rubric."""

from __future__ import annotations

from tracewheel.core.plugins import load_class
from tracewheel.scoring.verifiers.base import GradedVerifier, Verifier, progress
from tracewheel.scoring.verifiers.recorded import RecordedVerifier
from tracewheel.scoring.verifiers.workspace import WorkspaceVerifier

VERIFIERS: dict[str, type] = {verifier.kind: verifier for verifier in (RecordedVerifier, WorkspaceVerifier)}

__all__ = ["VERIFIERS", "GradedVerifier", "Verifier", "make_verifier", "progress"]


def make_verifier(kind: str) -> Verifier:
    """A verifier of a kind: a built-in name, or `module:Class` of your own.

    Raises:
        ConfigError: no such verifier.
    """
    verifier: Verifier = load_class(kind, VERIFIERS, "verifier")()
    return verifier
