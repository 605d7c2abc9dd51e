"""What the server decides, as a process: `python -m tracewheel_federated.server_work FEDERATION next|close`.

`next` prints the folder of the next step, with `order.json` and `global.safetensors` to send, or says that all is done. Answers
lie in `answers/CLIENT/`. `close` reads them and writes what came of them. All that is known lies in files, so a server that was
killed goes on with the step that was not closed.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tracewheel import DataError, RetrainConfig, digest_of, prepare_environment, read_json, write_json
from tracewheel_federated.aggregation import Part, aggregate, check_alike, combine_by_entry, true_mean, weights_of
from tracewheel_federated.low_rank import Adapter, Array, differences, gram, relative_error
from tracewheel_federated.provenance import is_noted, write_lineage
from tracewheel_federated.quarantine import held, hold
from tracewheel_federated.robust import Anomaly, anomalies, clip_scales, krum, median, quarantined_by, trimmed_mean
from tracewheel_federated.settings import Answer, FederationConfig, Order, likeness
from tracewheel_federated.states import WEIGHTS, read_adapter, untrained, write_adapter, write_state
from tracewheel_federated.verdicts import verdict_of

ORDER, GLOBAL, ANSWER, ADAPTER = "order.json", "global.safetensors", "answer.json", "adapter.safetensors"
ROUND, NEXT, ANSWERS = "round.json", "next.safetensors", "answers"


class Server:
    """A federation's steps, in its folder: `rounds/NNN-train`, `rounds/NNN-validate`, and `rounds/NNN-judge` at the end.

    Args:
        settings: The federation's file.
    """

    def __init__(self, settings: FederationConfig) -> None:
        self.settings = settings
        self.out = Path(settings.out)

    def steps(self) -> list[tuple[int, str]]:
        """All steps of the federation, in order."""
        rounds, every = self.settings.rounds, self.settings.validate_every
        found = []
        for number in range(1, rounds + 1):
            found.append((number, "train"))
            if every and number % every == 0:
                found.append((number, "validate"))
        return [*found, (rounds, "judge")]

    def next_step(self) -> dict[str, Any]:
        """The next step that is not closed: its folder, and how long to wait for whom; without a folder, all is done."""
        closed: Path | None = None
        for number, work in self.steps():
            folder = self.out / "rounds" / f"{number:03d}-{work}"
            if not (folder / ROUND).is_file():
                break
            closed = folder
        if closed and not is_noted(self.out, read_json(closed / ROUND)):  # the server was killed in `close`
            self._conclude(closed, read_json(closed / ROUND))
        if folder == closed:
            return {}
        self._prepare(folder, number, work)
        how = self.settings.participation
        return {"folder": str(folder), "work": work, "round": number, **how.model_dump(), "held": held(self.out)}

    def close(self, folder: Path) -> dict[str, Any]:
        """Read the answers of a step, and write its `round.json`; after training, the next global adapter too.

        Raises:
            DataError: too few clients can be used.
        """
        order = Order.checked(read_json(folder / ORDER), str(folder / ORDER))
        answers, refused = self._answers(folder, order)
        if order.work == "train":
            record = self._trained(folder, order, answers, refused)
        else:
            verdict = verdict_of({name: answer.counts for name, answer in answers.items()}, self.settings.margin)
            record = {"verdict": verdict}
        record = {"round": order.round, "work": order.work, "global": digest_of(folder / GLOBAL), "refused": refused, **record}
        write_json(folder / ROUND, record)
        self._conclude(folder, record)
        return record

    def _conclude(self, folder: Path, record: Mapping[str, Any]) -> None:
        """What follows from a step's record; doing it again changes nothing."""
        for name in record.get("quarantined", ()):
            rounds = self.settings.defence.quarantine_after if self.settings.defence else 0
            hold(self.out, name, f"left out {rounds} rounds running; last: {'; '.join(record['left_out'][name])}")
        if record["work"] == "judge":
            self._finish(folder, record)
        write_lineage(self.settings)

    def _prepare(self, folder: Path, number: int, work: str) -> None:
        """Write what is sent; answers that came before a server was killed stay."""
        before = self.out / "rounds" / f"{number - 1 if work == 'train' else number:03d}-train" / NEXT
        if number == 1 and work == "train":
            before = untrained(self._shared(), self.out / "untrained") / WEIGHTS
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(before, folder / GLOBAL)
        start = self.out / "start.json"
        if not start.is_file():
            write_json(start, {"alike": likeness(self._shared())})
        order = Order(
            federation=self.settings.name,
            round=number,
            work=work,
            local=self.settings.local,
            frozen_a=self.settings.aggregation.method == "frozen_a",
            rounds=self.settings.rounds,
            alike=read_json(start)["alike"],
        )
        write_json(folder / ORDER, order.model_dump(mode="json"))

    def _answers(self, folder: Path, order: Order) -> tuple[dict[str, Answer], dict[str, str]]:
        """The answers that can be used, and why the others cannot, by client."""
        found: dict[str, Answer] = {}
        refused: dict[str, str] = {}
        quarantined = held(self.out)
        for file in sorted(folder.glob(f"{ANSWERS}/*/{ANSWER}")):
            name = file.parent.name
            try:
                answer = Answer.checked(read_json(file), str(file))
            except Exception as error:  # a client may send anything
                refused[name] = f"its answer is none: {error}"
                continue
            if name in quarantined:
                refused[name] = "quarantined"
            elif answer.refused or answer.alike != order.alike:
                refused[name] = answer.refused or "other environment"
            else:
                found[name] = answer
        return found, refused

    def _trained(self, folder: Path, order: Order, answers: dict[str, Answer], refused: dict[str, str]) -> dict[str, Any]:
        start, adapters = read_adapter(folder / GLOBAL), {}
        for name in list(answers):
            file = folder / ANSWERS / name / ADAPTER
            try:
                adapter = read_adapter(file, folder / GLOBAL)
                reason = check_alike(adapter, start)
            except DataError as error:
                adapter, reason = {}, str(error)
            if reason:
                refused[name] = reason
                del answers[name]
            else:
                adapters[name] = adapter
        self._enough(len(adapters), folder, refused)
        scores = self._scores(start, adapters)
        left_out = {name: list(score.reasons) for name, score in scores.items() if score.reasons}
        kept = {name: adapter for name, adapter in adapters.items() if name not in left_out}
        self._enough(len(kept), folder, {**refused, **{name: "; ".join(reasons) for name, reasons in left_out.items()}})
        found, figures = self._combined(start, kept, [answers[name].examples for name in kept])
        write_adapter(found, folder / NEXT)
        digests = {name: digest_of(folder / ANSWERS / name / ADAPTER) for name in adapters}
        return {
            "clients": sorted(kept),
            "left_out": left_out,
            "quarantined": self._quarantined(order, left_out),
            "examples": {name: answers[name].examples for name in adapters},
            "epsilon": {name: answers[name].epsilon for name in adapters if answers[name].epsilon is not None},
            "updates": digests,
            "scores": {name: score.to_record() for name, score in scores.items()},
            "next": digest_of(folder / NEXT),
            "bytes": {name: (folder / ANSWERS / name / ADAPTER).stat().st_size for name in adapters},
            **figures,
        }

    def _enough(self, clients: int, folder: Path, without: Mapping[str, str]) -> None:
        least = self.settings.participation.least
        if clients < least:
            why = ", ".join(f"{name} ({reason})" for name, reason in without.items()) or "anybody else"
            raise DataError(
                f"{folder}: participation.least is {least}, and {clients} clients can be used, without {why}; "
                "start the command again when more are connected, or change `defence`"
            )

    def _scores(self, start: Adapter, adapters: Mapping[str, Adapter]) -> dict[str, Anomaly]:
        defence = self.settings.defence
        limits = {"largest": np.inf, "smallest": 0.0, "cosine": np.inf}
        if defence:
            limits = {name: getattr(defence, name) for name in limits}
        found = anomalies(gram([differences(adapter, start) for adapter in adapters.values()]), **limits)
        return dict(zip(adapters, found, strict=True))

    def _combined(
        self, start: Adapter, kept: Mapping[str, Adapter], examples: list[int]
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """The next global adapter, and how far it is from the true mean of what it was made of."""
        how, defence = self.settings.aggregation, self.settings.defence
        adapters = list(kept.values())
        products = gram([differences(adapter, start) for adapter in adapters])
        weights = weights_of(examples, equal=how.weights == "equal")
        if how.combine == "krum":
            chosen = krum(products, how.byzantine)
            adapters, weights = (
                [adapters[i] for i in chosen],
                weights_of([examples[i] for i in chosen], equal=how.weights == "equal"),
            )
            products = products[np.ix_(chosen, chosen)]
        scales = clip_scales(products, defence.clip) if defence else [1.0] * len(adapters)
        parts = [Part(*each) for each in zip(adapters, weights, scales, strict=True)]
        if how.combine in ("median", "trimmed_mean"):
            by_entry = median if how.combine == "median" else partial(trimmed_mean, byzantine=how.byzantine)
            found = combine_by_entry(start, adapters, how.method, by_entry)
        else:
            found = aggregate(start, parts, how.method)
        figures = {"scales": dict(zip(kept, scales, strict=False)) if how.combine != "krum" else {}}
        return found, {**figures, "error": relative_error(found, true_mean(start, parts))}

    def _quarantined(self, order: Order, left_out: Mapping[str, Any]) -> list[str]:
        defence = self.settings.defence
        if not defence:
            return []
        earlier = [self.out / "rounds" / f"{number:03d}-train" / ROUND for number in range(1, order.round)]
        history = [list(read_json(file)["left_out"]) for file in earlier if file.is_file()]
        return sorted(quarantined_by([*history, list(left_out)], defence.quarantine_after))

    def _finish(self, folder: Path, record: Mapping[str, Any]) -> None:
        """The last global adapter as a state; promoted or not is what the verdict says."""
        form = untrained(self._shared(), self.out / "untrained")
        write_state(self._shared(), form, read_adapter(folder / GLOBAL), self.out / "final", self.settings.rounds)
        write_json(self.out / "verdict.json", record["verdict"])

    def _shared(self) -> RetrainConfig:
        return self.settings.shared()


def main() -> None:
    settings, what = FederationConfig.load(sys.argv[1]), sys.argv[2]
    prepare_environment(None)
    server = Server(settings)
    found = server.next_step() if what == "next" else server.close(Path(sys.argv[3]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
