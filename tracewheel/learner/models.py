"""The trained policy and its reference, on one shared base where possible."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import UpdateSections
from tracewheel.core.errors import DataError
from tracewheel.policy.adapters import policy_of
from tracewheel.policy.chat_template import write_template

if TYPE_CHECKING:
    from torch import Tensor

POLICY, REFERENCE = "policy", "reference"


class LoraModels:
    """Policy and reference as two adapters on one frozen base: no second model is in memory.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
    """

    def __init__(self, config: UpdateSections, state: Path, reference: Path) -> None:
        from tracewheel.policy.loading import load_policy_for_training

        adapter = policy_of(reference, config.policy.base).adapter
        if adapter is None:
            raise DataError(f"{reference}: holds a whole model; with learner.weights 'lora' the reference must be an adapter")
        self._base, self._policy = config.policy.base, config.policy
        self.model: Any = load_policy_for_training(config, state, POLICY)
        self.model.load_adapter(adapter, adapter_name=REFERENCE)
        self.model.set_adapter(POLICY)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def stored(self, state: Path) -> dict[str, Tensor] | None:
        """The policy's weights in a state folder, by the names of the trained parameters; None if it has others.

        Raises:
            AdapterMismatchError: the state's adapter belongs to another base.
        """
        from safetensors.torch import load_file

        from tracewheel.policy.adapter_check import WEIGHTS

        adapter = policy_of(state, self._base).adapter
        if adapter is None:
            return None
        names = {name.replace(f".{POLICY}", ""): name for name, weight in self.model.named_parameters() if weight.requires_grad}
        return _by_name(load_file(Path(adapter) / WEIGHTS), names)

    @contextlib.contextmanager
    def reference(self) -> Iterator[Any]:
        """The reference policy, for passes without gradient."""
        with self.adapter(REFERENCE) as model:
            yield model

    @contextlib.contextmanager
    def adapter(self, name: str) -> Iterator[Any]:
        """The base with another adapter; take gradients before leaving."""
        self.model.set_adapter(name)
        try:
            yield self.model
        finally:
            self.model.set_adapter(POLICY)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[Any]:
        """The base alone."""
        with self.model.disable_adapter():
            yield self.model

    def save(self, out: Path, base: str, version: int, weights: dict[str, Tensor] | None = None) -> None:
        """Write the policy's adapter; `weights` are its weights by name, if the model holds only a part of them."""
        from tracewheel.policy.adapters import write_adapter

        write_adapter(self.model, out / "adapter", POLICY, base, version=version, weights=weights)
        write_template(self._policy, out / "adapter")
        _probe(self.model, out / "adapter")


class FullModels:
    """Every weight of the policy is trained; the reference is a second, frozen model."""

    def __init__(self, config: UpdateSections, state: Path, reference: Path) -> None:
        from tracewheel.policy.loading import load_policy_for_training

        self.model: Any = load_policy_for_training(config, state)
        self.reference_model: Any = load_policy_for_training(config, reference).requires_grad_(False)
        self.parameters = list(self.model.parameters())
        self._base, self._policy = config.policy.base, config.policy

    def stored(self, state: Path) -> dict[str, Tensor] | None:
        """The policy's weights in a state folder, by the names of the parameters; None if it has others.

        Raises:
            AdapterMismatchError: the state's model was trained from another base.
        """
        from safetensors.torch import load_file

        policy = policy_of(state, self._base)
        if policy.adapter is not None:
            return None
        weights: dict[str, Tensor] = {}
        for part in sorted(Path(policy.base).glob("*.safetensors")):
            weights |= load_file(part)
        return _by_name(weights, {name: name for name, _ in self.model.named_parameters()})

    @contextlib.contextmanager
    def reference(self) -> Iterator[Any]:
        """The reference policy, for passes without gradient."""
        yield self.reference_model

    frozen = reference

    def save(self, out: Path, base: str, version: int, weights: dict[str, Tensor] | None = None) -> None:
        """Write the whole model; `weights` are its weights by name, if the model holds only a part of them."""
        from tracewheel.policy.adapters import write_full_model

        write_full_model(self.model, out / "model", base, version=version, weights=weights)
        write_template(self._policy, out / "model")
        _probe(self.model, out / "model")


Models = LoraModels | FullModels


def _by_name(weights: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor] | None:
    """The weights under the model's names, None unless these are all of them."""
    return {names[name]: weight for name, weight in weights.items()} if weights.keys() == names.keys() else None


def _probe(model: Any, folder: Path) -> None:
    """Write a probe next to the weights; not with several processes, none of which can make a pass alone."""
    from tracewheel.learner.backends.processes import world_size
    from tracewheel.policy.probe import write_probe

    if world_size() == 1:
        write_probe(model, folder)


def load_models(config: UpdateSections, state: Path, reference: Path) -> Models:
    """The models of an update, according to `learner.weights`."""
    kind = FullModels if config.learner.weights == "full" else LoraModels
    return kind(config, state, reference)
