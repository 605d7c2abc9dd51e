"""Adapters by version with their probes, and the trainer's own log-probabilities under each."""

import pytest
import torch

from tracewheel.config import LoraConfig, PolicyConfig
from tracewheel.learner.warm_start.stage import peft_config
from tracewheel.policy.adapters import PolicyRef, write_adapter
from tracewheel.policy.loading import load_base
from tracewheel.policy.probe import write_probe


class Versions:
    """Policies of one base, each a random adapter of its own: `policy(version)`."""

    def __init__(self, base, folder):
        from peft import get_peft_model

        self._base, self._folder = base, folder
        self._model = get_peft_model(load_base(PolicyConfig(), base), peft_config(LoraConfig(rank=4, alpha=8))).eval()
        self._policies = {}

    def policy(self, version):
        if version not in self._policies:
            self._take(version)
            folder = self._folder / f"version-{version}" / "adapter"
            write_adapter(self._model, folder, "default", self._base, version=version)
            write_probe(self._model, folder)
            self._policies[version] = PolicyRef(self._base, str(folder), version)
        return self._policies[version]

    def _take(self, version):
        generator = torch.Generator().manual_seed(version)
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if "lora_" in name:
                    parameter.normal_(0.0, 0.05, generator=generator)

    @torch.no_grad()
    def logprobs(self, version, ids, temperature=1.0):
        """[T - 1]: what the trainer's model of that version gives to all but the first of `ids`."""
        self._take(version)
        logits = self._model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
        return torch.log_softmax(logits / temperature, dim=-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


@pytest.fixture(scope="session")
def versions(base, tmp_path_factory):
    return Versions(base, tmp_path_factory.mktemp("versions"))
