"""Engines: what turns token ids into sampled turns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tracewheel.config.base import Count, Strict


class TransformersEngineConfig(Strict):
    """Batched generation with Hugging Face transformers, the KV cache kept across turns."""

    kind: Literal["transformers"] = "transformers"
    slots: Count = 256


EngineConfig = Annotated[TransformersEngineConfig, Field(discriminator="kind")]
