"""Writing an adapter as a state that every stage can start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.config import PolicyConfig
from tracewheel.policy.adapters import ADAPTER, write_adapter
from tracewheel.policy.chat_template import write_template
from tracewheel.policy.probe import write_probe

if TYPE_CHECKING:
    from peft import PeftModel


def save_adapter(config: PolicyConfig, model: PeftModel, name: str, out: Path, version: int) -> Path:
    """Write one adapter of a model to `out/adapter`: weights, the base's hash, the chat template and the probe.

    Args:
        config: The profile's section `policy`, with the base.
        model: The base with the adapter, on which it is active afterwards.
        name: The adapter's name in the model.
        out: The state folder.
        version: The policy version.

    Returns:
        The adapter's folder.
    """
    write_adapter(model, out / ADAPTER, name, config.base, version=version)
    write_template(config, out / ADAPTER)
    model.set_adapter(name)
    write_probe(model, out / ADAPTER)
    return out / ADAPTER
