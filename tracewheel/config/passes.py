"""How the tokens of an optimiser step pass through the model, and on how many processes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tracewheel.config.base import Count, Positive, Strict


class LocalBackendConfig(Strict):
    """Updates in one process."""

    kind: Literal["local"] = "local"


class DeepSpeedConfig(Strict):
    """ZeRO (Rajbhandari et al. 2020) over several processes.

    Stage 2 shards gradients and the optimiser's state, stage 3 the weights too. `offload` keeps the optimiser's state in
    main memory, or `all`: the weights too (stage 3). Unless torchrun has started the update, it starts `processes`
    processes (default: one for each GPU).
    """

    kind: Literal["deepspeed"] = "deepspeed"
    processes: Count | None = None
    stage: Literal[2, 3] = 2
    offload: Literal["none", "optimizer", "all"] = "none"
    overlap_comm: bool = True


BackendConfig = Annotated[LocalBackendConfig | DeepSpeedConfig, Field(discriminator="kind")]


class PassesConfig(Strict):
    """How the tokens of an optimiser step pass through the model, whatever their number.

    `weights`: train a LoRA adapter or the whole model. A step's tokens are cut into micro-batches of at most
    `micro_batch_tokens` tokens, or one sequence, whose gradients add up. `layout` of a micro-batch: `padded`, `packed` into
    one row without padding, or `shared_prefix`, packed with common beginnings only once. `gradient_checkpointing`
    recomputes each layer in the backward pass, which takes a third longer and keeps a fraction of the memory: on by default,
    as in TRL and verl. `backend`: one process or several.

    Attributes:
        RATES: The default learning rate by `weights`. LoRA takes about ten times the rate of full training (Schulman et al.
            2025, "LoRA Without Regret").
    """

    RATES: ClassVar[dict[str, float]] = {}

    max_grad_norm: Positive = 1.0
    micro_batch_tokens: Count = 4096
    layout: Literal["padded", "packed", "shared_prefix"] = "shared_prefix"
    gradient_checkpointing: bool = True
    weights: Literal["lora", "full"] = "lora"
    backend: BackendConfig = LocalBackendConfig()

    @model_validator(mode="before")
    @classmethod
    def _rate_of_weights(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "learning_rate" in values or values.get("weights", "lora") not in cls.RATES:
            return values
        return {**values, "learning_rate": cls.RATES[values.get("weights", "lora")]}
