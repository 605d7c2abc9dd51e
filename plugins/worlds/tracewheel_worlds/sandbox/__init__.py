"""Running what an agent wrote, apart from this machine: without network, secrets, or a way to write outside its box."""

from tracewheel_worlds.sandbox.base import BoxFile, BoxRun, Limits, Sandbox, SandboxConfig
from tracewheel_worlds.sandbox.making import make_sandbox

__all__ = ["BoxFile", "BoxRun", "Limits", "Sandbox", "SandboxConfig", "make_sandbox"]
