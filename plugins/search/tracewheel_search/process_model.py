"""A process reward model: the chance of success from the end of a turn, by logistic regression on the policy's hidden states.

The features of a step are the policy's last hidden states at its last token: the one that ended the turn, or the last of the
prompt. It is fitted to Monte Carlo values (`step_values`) as to so many successes of so many tries, and tested on other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel import DataError, PolicyRef, RetrainConfig, Trajectory, read_before, read_json, write_json
from tracewheel_search.step_values import StepValue

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]
FILE = "process_model.json"
TOKENS = 8192  # in a pass
FEWEST_TASKS = 4
BINS, FOLDS = 10, 4
PENALTIES = (1.0, 10.0, 100.0, 1000.0)


class HiddenStates:
    """The policy's last hidden states at the ends of turns.

    Args:
        config: How the policy is loaded.
        policy: Which policy.
    """

    def __init__(self, config: RetrainConfig, policy: PolicyRef) -> None:
        from tracewheel import load_for_generation

        self._model = load_for_generation(config.policy, policy)

    def of(self, trajectory: Trajectory) -> Array:
        """[K + 1, H] of a trajectory of K turns: after the prompt, and after each turn.

        A token's context is its own history, also where a template rewrote earlier turns.
        """
        import torch

        ends = [turn["end"] for turn in trajectory.turns]
        if not ends:
            return np.zeros((0, self._model.config.get_text_config().hidden_size))
        places = [trajectory.turns[0]["start"] - 1, *(end - 1 for end in ends)]
        with torch.no_grad():
            if not trajectory.forks:
                hidden = self._hidden(trajectory.token_ids[: ends[-1]])
                return hidden[places].double().cpu().numpy()
            rows = [[*read_before(trajectory, place), trajectory.token_ids[place]] for place in places]
            return np.stack([self._hidden(row)[-1].double().cpu().numpy() for row in rows])

    def _hidden(self, ids: Sequence[int]) -> torch.Tensor:
        import torch

        tokens = torch.tensor([list(ids)], device=self._model.device)
        found: torch.Tensor = self._model.base_model(input_ids=tokens).last_hidden_state[0]
        return found


@dataclass(frozen=True)
class ProcessModel:
    """p = 1 / (1 + exp(-(w (x - mean) / scale + shift))) of features x [H]."""

    weights: Array
    shift: float
    mean: Array
    scale: Array

    def values(self, features: Array) -> Array:
        """The chances [N] of features [N, H]."""
        if features.shape[-1] != len(self.weights):
            raise DataError(f"a process model of {len(self.weights)} features, and the policy gives {features.shape[-1]}")
        logits = (features - self.mean) / self.scale @ self.weights + self.shift
        found: Array = 0.5 * (1.0 + np.tanh(0.5 * logits))
        return found

    def save(self, out: Path, about: Mapping[str, Any]) -> None:
        """Write it with its figures; equal models give equal bytes."""
        lists = {name: getattr(self, name).tolist() for name in ("weights", "mean", "scale")}
        write_json(out / FILE, {"shift": self.shift, **lists, **about})

    @classmethod
    def load(cls, folder: Path) -> ProcessModel:
        """Read what `save` wrote.

        Raises:
            DataError: the folder holds no process model.
        """
        stored = read_json(folder / FILE, "give a folder that `tracewheel train-process-model` wrote")
        try:
            weights, mean, scale = (np.array(stored[name], dtype=np.float64) for name in ("weights", "mean", "scale"))
            return cls(weights, float(stored["shift"]), mean, scale)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder / FILE}: not a process model: {error!r}") from error


def fit(features: Array, successes: Array, tried: Array, penalty: float = 1.0) -> ProcessModel:
    """Fit by maximum likelihood with a penalty of `penalty`/2 |w|^2 against the log-likelihood of all tries.

    Args:
        features: [N, H].
        successes: [N], of `tried` [N] tries; both may be fractions.
        tried: [N].
        penalty: Of the weights of standardised features; not of the shift.
    """
    from scipy.optimize import minimize

    mean, scale = features.mean(0), features.std(0)
    scale = np.where(scale > 1e-8, scale, 1.0)
    x = (features - mean) / scale

    def loss(at: Array) -> tuple[float, Array]:
        logits = x @ at[:-1] + at[-1]
        likelihood = tried @ np.logaddexp(0.0, logits) - successes @ logits
        gap = tried * 0.5 * (1.0 + np.tanh(0.5 * logits)) - successes
        gradient = np.append(x.T @ gap + penalty * at[:-1], gap.sum())
        return float(likelihood + 0.5 * penalty * at[:-1] @ at[:-1]), gradient

    found = minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    return ProcessModel(found[:-1], float(found[-1]), mean, scale)


@dataclass(frozen=True)
class Steps:
    """N tried steps: features [N, H], successes and tries [N], and of each its task and after how many turns it is."""

    features: Array
    successes: Array
    tried: Array
    tasks: list[str]
    turns: Array

    def take(self, kept: npt.NDArray[np.bool_]) -> Steps:
        """The steps where `kept` [N] is true."""
        names = [task for task, keep in zip(self.tasks, kept, strict=True) if keep]
        return Steps(self.features[kept], self.successes[kept], self.tried[kept], names, self.turns[kept])


def steps_of(values: Sequence[StepValue], hidden: Mapping[str, Array]) -> Steps:
    """The tried steps with their features, an equal beginning once; `hidden` [K + 1, H] is by trajectory."""
    seen: dict[tuple[str, bytes], StepValue] = {}
    for each in values:
        if each.tried:
            seen.setdefault((each.task, hidden[each.trajectory][each.turn].tobytes()), each)
    tried = list(seen.values())
    return Steps(
        np.array([hidden[each.trajectory][each.turn] for each in tried]),
        np.array([each.successes for each in tried], dtype=np.float64),
        np.array([each.tried for each in tried], dtype=np.float64),
        [each.task for each in tried],
        np.array([each.turn for each in tried], dtype=np.float64),
    )


def chosen_penalty(steps: Steps, seed: int) -> float:
    """The penalty with the best Brier score in a cross-validation of four parts, each of tasks of its own."""
    names = sorted(set(steps.tasks))
    order = np.random.default_rng(seed).permutation(len(names))
    part = {names[place]: number % FOLDS for number, place in enumerate(order)}
    parts = np.array([part[task] for task in steps.tasks])
    losses = []
    for penalty in PENALTIES:
        predicted = np.zeros(len(parts))
        for number in sorted(set(parts.tolist())):
            known = steps.take(parts != number)
            model = fit(known.features, known.successes, known.tried, penalty)
            predicted[parts == number] = model.values(steps.features[parts == number])
        losses.append(_brier(predicted, steps, np.arange(len(parts))))
    return PENALTIES[int(np.argmin(losses))]


def train(steps: Steps, seed: int) -> tuple[ProcessModel, dict[str, Any]]:
    """Fit on 60% of the tasks and test on the others; returns the model of all tasks, and the test of the model of the 60%.

    The penalty is chosen on the 60% alone.

    Raises:
        DataError: there are too few tasks, or all tries of those fitted or of those tested ended alike.
    """
    names = sorted(set(steps.tasks))
    if len(names) < FEWEST_TASKS:
        raise DataError(
            f"steps of {len(names)} tasks, and at least {FEWEST_TASKS} are needed: give more trajectories or a larger budget"
        )
    order = np.random.default_rng(seed).permutation(len(names))
    fitted = {names[place] for place in order[: round(0.6 * len(names))]}
    inside = np.array([task in fitted for task in steps.tasks])
    known, held = steps.take(inside), steps.take(~inside)
    for part, use in ((known, "learn a value from"), (held, "test a value by")):
        if not 0 < part.successes.sum() < part.tried.sum():
            tasks = len(set(part.tasks))
            raise DataError(f"all tries of {tasks} tasks ended alike: nothing to {use}; give more, harder or easier tasks")
    penalty = chosen_penalty(known, seed)
    figures = {"penalty": penalty} | tested(fit(known.features, known.successes, known.tried, penalty), known, held)
    return fit(steps.features, steps.successes, steps.tried, penalty), figures


def tested(model: ProcessModel, known: Steps, held: Steps) -> dict[str, Any]:
    """How well the values of steps of other tasks are told: Brier score and calibration error, of all and by turn.

    `brier_by_turn_alone` is that of the mean success after so many turns on the fitted tasks, which looks at no token;
    `brier_floor` that of the true values, as far as the tries show it: no model can be better.
    """
    predicted = model.values(held.features)
    alone = np.array([_rate(known.take(known.turns == turn), known) for turn in held.turns])
    found = _figures(predicted, alone, held)
    draw, names = np.random.default_rng(0), sorted(set(held.tasks))
    places = {name: np.flatnonzero([task == name for task in held.tasks]) for name in names}
    gains = []
    for _ in range(1000):
        rows = np.concatenate([places[names[at]] for at in draw.integers(len(names), size=len(names))])
        gains.append(_brier(alone[rows], held, rows) - _brier(predicted[rows], held, rows))
    found["gain"] = found["brier_by_turn_alone"] - found["brier"]
    found["gain_interval"] = [float(end) for end in np.quantile(gains, [0.025, 0.975])]
    found["by_turn"] = {}
    for turn in sorted(set(held.turns.tolist())):
        at = held.turns == turn
        found["by_turn"][str(int(turn))] = _figures(predicted[at], alone[at], held.take(at))
    return {"fitted_tasks": len(set(known.tasks)), "tasks": len(names), **found}


def _figures(predicted: Array, alone: Array, steps: Steps) -> dict[str, Any]:
    rows = np.arange(len(predicted))
    return {
        "steps": len(predicted),
        "tries": int(steps.tried.sum()),
        "success": float(steps.successes.sum() / steps.tried.sum()),
        "brier": _brier(predicted, steps, rows),
        "brier_by_turn_alone": _brier(alone, steps, rows),
        "brier_floor": _floor(steps),
        "ece": calibration_error(predicted, steps.successes, steps.tried),
    }


def _brier(predicted: Array, steps: Steps, rows: npt.NDArray[np.int64]) -> float:
    good, tried = steps.successes[rows], steps.tried[rows]
    return float((good * (1 - predicted) ** 2 + (tried - good) * predicted**2).sum() / tried.sum())


def _floor(steps: Steps) -> float | None:
    """The mean of v (1 - v) over tries, without bias: s (n - s) / (n (n - 1)) for s successes of n tries; None with one try."""
    good, tried = steps.successes, steps.tried
    twice = tried > 1
    if not twice.any():
        return None
    good, tried = good[twice], tried[twice]
    return float((good * (tried - good) / (tried - 1)).sum() / tried.sum())


def calibration_error(predicted: Array, successes: Array, tried: Array) -> float:
    """The expected calibration error over ten equal bins (Guo et al. 2017), each try counting once."""
    places = np.minimum((predicted * BINS).astype(int), BINS - 1)
    gaps = [
        abs(float((predicted[at] * tried[at]).sum() - successes[at].sum())) for at in (places == place for place in range(BINS))
    ]
    return sum(gaps) / float(tried.sum())


def _rate(steps: Steps, otherwise: Steps) -> float:
    chosen = steps if len(steps.tasks) else otherwise
    return float(chosen.successes.sum() / chosen.tried.sum())


def critic_of(folder: Path, config: RetrainConfig, policy: PolicyRef) -> Callable[[Sequence[Trajectory]], list[float]]:
    """A process model as the critic of a search: the chance of success after the last turn of each trajectory."""
    model, hidden = ProcessModel.load(folder), HiddenStates(config, policy)
    return lambda trajectories: [float(model.values(hidden.of(each)[-1:])[0]) for each in trajectories]
