"""An adapter's files, as they were when an engine loaded them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tracewheel.core.errors import AdapterMismatchError, ConfigError
from tracewheel.core.fingerprint import files_hash
from tracewheel.policy.adapter_check import WEIGHTS
from tracewheel.policy.adapter_form import CONFIG, beyond_vllm, largest_rank, read_form
from tracewheel.policy.adapters import PolicyRef, check_adapter


@dataclass(frozen=True)
class AdapterFiles:
    """An adapter's folder and the digest of its weights and config."""

    folder: str
    digest: str

    @classmethod
    def of(cls, policy: PolicyRef) -> AdapterFiles:
        """The files of a policy's adapter.

        Raises:
            AdapterMismatchError: it was trained for another base.
            DataError: the folder holds no adapter.
        """
        assert policy.adapter is not None
        check_adapter(policy.adapter, policy.base)
        folder = str(Path(policy.adapter).resolve())
        return cls(folder, _digest(folder))

    def check(self, max_rank: int) -> None:
        """Check that the files are unchanged, that their rank is at most `max_rank`, and that vLLM computes their form.

        Raises:
            AdapterMismatchError: the files have changed.
            ConfigError: the rank is too large, or vLLM does not compute the form.
        """
        if _digest(self.folder) != self.digest:
            raise AdapterMismatchError(
                f"{self.folder}: its files have changed since the engine loaded them; write each version to a folder of its own"
            )
        form = read_form(Path(self.folder))
        if unknown := beyond_vllm(form):
            raise ConfigError(
                f"{self.folder}: vLLM does not compute {unknown}: set rollout.engine.kind to 'transformers', or use its merged "
                "weights as the base (`tracewheel export --format merged`)"
            )
        rank = largest_rank(form)
        if rank > max_rank:
            raise ConfigError(
                f"{self.folder}: has rank {rank}, and the engine takes at most {max_rank}, the largest that the profile trains "
                "(warm_start.lora.rank)"
            )


def _digest(folder: str) -> str:
    return files_hash([Path(folder) / name for name in (WEIGHTS, CONFIG)])
