"""A GPU that this machine does not have: its tensors compute on the CPU and may not meet others, and waits for it are counted.

The device is torch's place for a backend from outside. It is registered for the whole process, so this file is a program: it
plays a part of `benchmarks/gpu` on the CPU and there, and prints one JSON.

    python tests/benchmarks/pretended_gpu.py learner|engine LAYERS ...
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/gpu"), str(ROOT / "benchmarks"), str(ROOT)]

import torch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_flatten, tree_map  # noqa: E402
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # noqa: E402

NAME = "pretended"
MOVES = {"_to_copy", "copy_", "to"}
# What the CPU waits for: a value, or how many elements there are.
WAITS = {"_local_scalar_dense", "is_nonzero", "item", "nonzero", "masked_select", "equal", "_unique2", "unique_consecutive"}
waits: Counter[str] = Counter()


class MixedDevices(RuntimeError):
    """An operator got tensors of both devices."""


class PretendedTensor(torch.Tensor):
    """A tensor on the pretended GPU; `own` is where it computes."""

    own: torch.Tensor

    @staticmethod
    def __new__(cls, own: torch.Tensor) -> PretendedTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls, own.shape, strides=own.stride(), storage_offset=own.storage_offset(), dtype=own.dtype, device=f"{NAME}:0"
        )
        made.own = own
        return made

    def tolist(self) -> Any:
        """One copy to the CPU; torch has none for a subclass."""
        waits["tolist"] += 1
        return self.own.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class MadeOrMoved(TorchDispatchMode):
    """Sees the operators that make tensors on the pretended GPU, or move them there: no tensor of it takes part."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class MadeOfLists(TorchFunctionMode):
    """`torch.tensor` copies its list past all dispatch modes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == NAME:
            return func(*args, **kwargs | {"device": "cpu"}).to(kwargs["device"])
        return func(*args, **kwargs)


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on the CPU; its results are on the device that it was asked for, or else its tensors'.

    Raises:
        MixedDevices: they are on both, and are neither single values nor indices.
    """
    name = func._schema.name.removeprefix("aten::")
    leaves = tree_flatten((args, kwargs))[0]
    ours = [each for each in leaves if isinstance(each, PretendedTensor)]
    others = [each for each in leaves if isinstance(each, torch.Tensor) and not isinstance(each, PretendedTensor) and each.ndim]
    target = next((each.type for each in leaves if isinstance(each, torch.device)), None)
    indexes = name.startswith(("index", "_index"))
    if ours and others and name not in MOVES and not indexes:
        raise MixedDevices(f"{name}: {[str(each.device) for each in [*ours, *others]]}")
    if ours and (name in WAITS or (indexes and any(each.dtype == torch.bool for each in ours[1:]))):
        waits[name] += 1
    leaves_it = bool(ours) and (target == "cpu" or (name == "copy_" and not isinstance(args[0], PretendedTensor)))
    waits["to the CPU"] += leaves_it
    result = func(*tree_map(on_cpu, args), **tree_map(on_cpu, kwargs))
    alias = func._schema.arguments[0].alias_info if func._schema.arguments else None
    if alias and alias.is_write:
        return args[0]
    stays = target == NAME or (target is None and bool(ours) and not leaves_it)
    return tree_map(lambda each: PretendedTensor(each) if stays and isinstance(each, torch.Tensor) else each, result)


def on_cpu(each: Any) -> Any:
    """An argument as the CPU takes it."""
    if isinstance(each, torch.device):
        return torch.device("cpu")
    return each.own if isinstance(each, PretendedTensor) else each


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Operators may name the device `pretended`."""
    with MadeOrMoved(), MadeOfLists():
        yield


def learner(layers: int) -> dict[str, Any]:
    """By layout: how far gradients are from the CPU's, and what one more pass waits for; and that mixing is seen."""
    import learning

    workload = replace(learning.SMALL, layers=layers, tokens=64, action=8, observation=8)
    found: dict[str, Any] = {}
    for layout in ("padded", "packed", "shared_prefix", "forks"):
        expected = learning._gradient(workload, layout, "cpu", torch.float32)
        with pretended_gpu():
            given = learning._gradient(workload, layout, NAME, torch.float32)
            model = learning.fuse_adapters(learning.policy(workload, torch.float32).to(NAME))
            batches = learning._batches(workload, layout, NAME)
            learning._backward(model, batches, layout)  # the first pass checks the model
            waits.clear()
            learning._backward(model, batches, layout)
        assert all(each.grad.device.type == NAME for each in model.parameters() if each.requires_grad)
        distance = float((given - expected).norm() / expected.norm())
        found[layout] = {"distance": distance, "batches": len(batches), "waits": +waits}
    with pretended_gpu():
        try:
            torch.ones(2, device=NAME) + torch.ones(2)
        except MixedDevices as error:
            found["mixed"] = str(error)
    return found


def engine(layers: int) -> dict[str, Any]:
    """Whether turns are the CPU's to the bit, and what each step waits for."""
    import learning

    from tracewheel.engines import lean_decoder
    from tracewheel.engines.base import Request, Sampling
    from tracewheel.engines.transformers import TransformersEngine
    from tracewheel.policy.adapters import PolicyRef

    workload = replace(learning.SMALL, layers=layers)
    lean_decoder.DEVICES.add(NAME)

    def turns(device: str) -> tuple[list[Any], list[dict[str, int]]]:
        model = learning.policy(workload, torch.float32).unload().eval().to(device)
        playing = TransformersEngine(lambda _: model, PolicyRef("random"), workload.vocabulary - 1, Sampling(), 3)
        rng = random.Random(0)
        for number in range(3):
            ids = [rng.randrange(3, workload.vocabulary) for _ in range(16)]
            playing.submit(Request(number, ids, 8, seed=number, greedy=number == 0))
        ended, steps = [], []
        while not playing.idle:
            waits.clear()
            ended += [(each.session, each.token_ids, each.logprobs) for each in playing.step()]
            steps.append(dict(+waits))
        return ended, steps

    expected, _ = turns("cpu")
    with pretended_gpu():
        given, steps = turns(NAME)
    return {"equal": given == expected, "turns": len(given), "steps": steps}


if __name__ == "__main__":
    _setup_privateuseone_for_python_backend(NAME)
    torch.__future__.set_swap_module_params_on_conversion(True)
    part = {"learner": learner, "engine": engine}[sys.argv[1]]
    print(json.dumps([part(int(layers)) for layers in sys.argv[2:]]))
