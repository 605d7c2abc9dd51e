"""What a client does for an order of the server, as a process: `python -m tracewheel_federated.client_work CLIENT FOLDER`.

The folder holds `order.json` and `global.safetensors`. Written are `answer.json` and, after training, `adapter.safetensors`:
these two are all that is sent. An order that was answered before is not carried out again, so a client that was killed goes
on where it was, and ends with the same bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracewheel import (
    ConfigError,
    CurateSections,
    EvaluateSections,
    PolicyRef,
    RetrainConfig,
    RolloutSections,
    SamplerSections,
    ScoreSections,
    UpdateFiles,
    UpdateSections,
    WarmStartSections,
    curate,
    digest_of,
    evaluate_split,
    ingest,
    load_tasks,
    make_sampler,
    observe_scores,
    policy_of,
    prepare_environment,
    produce_whole,
    read_json,
    read_table,
    roll_out,
    score,
    update,
    warm_start,
    write_json,
)
from tracewheel_federated.low_rank import A, Adapter
from tracewheel_federated.privacy import epsilon, noised
from tracewheel_federated.settings import Answer, ClientConfig, Counts, LocalConfig, Order, likeness
from tracewheel_federated.states import WEIGHTS, load_into, read_adapter, untrained, write_adapter, write_state

ORDER, GLOBAL, ANSWER, ADAPTER = "order.json", "global.safetensors", "answer.json", "adapter.safetensors"
DONE = "done.json"
TURN = "TRACEWHEEL_FEDERATED_TURN"  # a file: clients on one machine work one after the other
SPLITS = {"validate": "validation", "judge": "held_out"}


class Client:
    """A client's work; everything that it keeps lies in its own folder.

    Args:
        settings: The client's file.
    """

    def __init__(self, settings: ClientConfig) -> None:
        self.settings = settings
        self.config = settings.own()
        self.out = Path(settings.out)

    def carry_out(self, folder: Path) -> Answer:
        """Carry out the order in a folder, unless it is done.

        Raises:
            ConfigError: the order is not one, or the profile trains what cannot be federated.
        """
        order = Order.checked(read_json(folder / ORDER), str(folder / ORDER))
        asked = digest_of(folder / ORDER) + digest_of(folder / GLOBAL)
        if (folder / DONE).is_file() and read_json(folder / DONE) == {"asked": asked}:
            return Answer.checked(read_json(folder / ANSWER), str(folder / ANSWER))
        for name in ("trained", "reinforced", "before", "after", "state"):
            shutil.rmtree(folder / name, ignore_errors=True)
        answer = self._answer(order, folder)
        write_json(folder / ANSWER, answer.model_dump(mode="json"))
        write_json(folder / DONE, {"asked": asked})
        return answer

    def _answer(self, order: Order, folder: Path) -> Answer:
        alike = likeness(self.config)
        said: dict[str, Any] = {"client": self.settings.name, "alike": alike}
        if alike != order.alike:
            return Answer(**said, refused="other environment")
        curated = self._curated()
        start = read_adapter(folder / GLOBAL)
        if order.work != "train":
            split = SPLITS[order.work]
            counts = self._counts(self._state(start, folder, order), curated, split, folder) if self.settings.counts else None
            return Answer(**said, counts=counts)
        trained, examples = self._train(order, start, curated, folder)
        adapter, privacy = read_adapter(trained / WEIGHTS), self.settings.privacy
        if privacy:
            given = {"clip": privacy.clip, "noise": privacy.noise, "seed": secret_seed(), "frozen_a": order.frozen_a}
            adapter, examples = noised(adapter, start, **given), 0
            said |= {"epsilon": epsilon(privacy.noise, order.rounds, privacy.delta), "delta": privacy.delta}
        write_adapter(adapter, folder / ADAPTER)
        return Answer(**said, examples=examples)

    def _curated(self) -> Path:
        """The client's own logs as tasks and episodes; made once."""
        read, curated = self.out / "ingested", self.out / "curated"
        if not read.is_dir():
            produce_whole(read, lambda out: ingest(self.config.ingest, out))
        if not curated.is_dir():
            produce_whole(curated, lambda out: curate(CurateSections.of(self.config), read, out))
        return curated

    def _state(self, start: Adapter, folder: Path, order: Order) -> Path:
        """The global adapter as a state that stages start from."""
        form = untrained(self.config, self.out / "untrained")
        return write_state(self.config, form, start, folder / "state", order.round)

    def _train(self, order: Order, start: Adapter, curated: Path, folder: Path) -> tuple[Path, int]:
        """The trained state, and how many examples are in it."""
        own = self.config.warm_start
        if order.round > 1:  # the adapter is warm, and a round has few steps
            own = own.model_copy(update={"warmup_steps": 0})
        config = self.config.model_copy(update={"seed": self.config.seed + order.round - 1, "warm_start": own})
        if order.local.work == "reinforce":
            if order.frozen_a or order.local.proximal:
                raise ConfigError("local.work: reinforce trains both factors freely; use stacked or plain, and proximal: 0")
            return self._reinforce(config, order, self._state(start, folder, order), curated, folder)
        if config.warm_start.weights != "lora" or config.warm_start.backend.kind != "local":
            raise ConfigError(f"{self.settings.profile}: warm_start: a client trains a LoRA adapter on the backend 'local'")
        kind = config.warm_start.demonstrations
        trained = folder / "trained"
        begin = lambda model: begin_from(model, start, order.local, frozen_a=order.frozen_a)  # noqa: E731
        made = produce_whole(trained, lambda out: warm_start(WarmStartSections.of(config), curated, out, kind, begin))
        return trained, int(made["examples"])

    def _reinforce(self, config: RetrainConfig, order: Order, state: Path, curated: Path, folder: Path) -> tuple[Path, int]:
        tasks, sampler = load_tasks(curated, "train"), make_sampler(SamplerSections.of(config), curated)
        for scores in sorted(self.out.glob(f"rounds/{order.federation}/*-train/reinforced/*/score/scores.parquet")):
            observe_scores(sampler, scores)
        reference, episodes = state, 0
        for step in range(order.local.iterations):
            iteration = (order.round - 1) * order.local.iterations + step + 1
            played, scored, updated = (folder / "reinforced" / f"{step:03d}" / name for name in ("rollout", "score", "update"))
            for made in (played, scored, updated):
                made.mkdir(parents=True)
            chosen = sampler.select(config.training.tasks_per_iteration, iteration)
            policy = policy_of(state, config.policy.base)
            roll_out(
                RolloutSections.of(config),
                policy,
                curated,
                chosen,
                played,
                iteration=iteration,
                variants=sampler.variants(chosen),
                greedy_baseline=config.greedy_baseline,
            )
            score(ScoreSections.of(config), tasks, played / "trajectories.parquet", scored)
            observe_scores(sampler, scored / "scores.parquet")
            files = UpdateFiles.of_folders([played], [scored], state=state, reference=reference, out=updated)
            update(UpdateSections.of(config), files, iteration=iteration)
            episodes += len(read_table(scored / "scores.parquet"))
            state = updated
        return state, episodes

    def _counts(self, state: Path, curated: Path, split: str, folder: Path) -> Counts:
        """The client's own policy and the global one on the same tasks, greedily."""
        base, champion = self.config.policy.base, self.settings.champion
        before = self.out / f"champion-{split}"
        if not before.is_dir():  # it stays the same from round to round
            own = policy_of(champion, base) if champion else PolicyRef(base)
            produce_whole(before, lambda out: evaluate_split(self._judging(), own, curated, split, out, samples=0))
        after, policy = folder / "after", policy_of(state, base)
        produce_whole(after, lambda out: evaluate_split(self._judging(), policy, curated, split, out, samples=0))
        return counted(before, after)

    def _judging(self) -> EvaluateSections:
        return EvaluateSections.of(self.config)


def begin_from(model: Any, start: Adapter, local: LocalConfig, *, frozen_a: bool) -> None:
    """Make a fresh model begin as the global adapter; hold A where it is shared, and pull to the start with FedProx."""
    load_into(model, start)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if frozen_a and A in name:
            parameter.requires_grad_(False)
        elif local.proximal:
            parameter.register_hook(_pull(parameter, local.proximal))


def _pull(parameter: Any, strength: float) -> Any:
    """The gradient of FedProx's term, once an optimiser step: when the first micro-batch comes, there is no gradient yet."""
    start = parameter.detach().clone()
    return lambda gradient: gradient + strength * (parameter.detach() - start) if parameter.grad is None else gradient


def counted(before: Path, after: Path) -> Counts:
    """Successes of two evaluations, on the tasks that both have a score of."""
    results = [read_table(folder / "results.parquet").set_index("task_id")["greedy"].dropna() for folder in (before, after)]
    both = results[0].index.intersection(results[1].index)
    one, other = (result.loc[both] == 1.0 for result in results)
    return Counts(
        tasks=len(both),
        before=int(one.sum()),
        after=int(other.sum()),
        gained=int((other & ~one).sum()),
        lost=int((one & ~other).sum()),
    )


def secret_seed() -> int:
    """Of the noise: whoever could guess it could take the noise away."""
    return int.from_bytes(os.urandom(16))


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    """Wait for the other clients of this machine, where they take turns."""
    turn = os.environ.get(TURN)
    if not turn:
        yield
        return
    with Path(turn).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    settings, folder = ClientConfig.load(sys.argv[1]), Path(sys.argv[2])
    prepare_environment(None)
    with in_turn():
        Client(settings).carry_out(folder)


if __name__ == "__main__":
    main()
