"""Who was in the training: a test of a federation's global adapter by its losses on logged episodes.

    python plugins/federated/benchmarks/membership.py --study runs/federated

The attacker has the adapter, the base and some episodes, and says of each whether it was trained on. Members are the
successful training episodes of a house, others its successful held-out episodes, whose tasks nobody trains on: the same users
and families. The attack `loss` takes those of the lowest loss a token (Yeom et al. 2018); `reference` those whose loss fell
most from the base's (Carlini et al. 2022, with one reference). `base` is the loss of the base alone, which has seen none: what
it finds is a difference between the groups. The area under the curve is 0.5 for guessing; its interval is a bootstrap over
tasks, because episodes of a task are alike.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracewheel import PolicyRef, base_folder, load_for_generation, load_tokenizer, policy_of, prepare_environment
from tracewheel_federated.settings import ClientConfig

DRAWS = 2000


def membership(study: Path, state: Path, houses: list[str]) -> dict[str, Any]:
    """The areas of each attack with their intervals, over all houses.

    Args:
        study: A folder of `rounds.py`.
        state: The policy that is attacked, such as the study's `server/final`.
        houses: Names of clients.
    """
    config = ClientConfig.load(study / f"{houses[0]}.yaml").own()
    episodes = logged(study, houses)
    losses = {}
    for name, policy in (("base", PolicyRef(config.policy.base)), ("global", policy_of(state, config.policy.base))):
        losses[name] = episode_losses(load_for_generation(config.policy, policy), config.policy.base, episodes)
    found: dict[str, Any] = {"members": int(episodes["member"].sum()), "others": int((~episodes["member"]).sum())}
    for attack, scores in (
        ("loss", -losses["global"]),
        ("reference", losses["base"] - losses["global"]),
        ("base", -losses["base"]),
    ):
        found[attack] = area_with_interval(scores, episodes["member"].to_numpy(), episodes["task_id"].to_numpy())
    return found


def logged(study: Path, houses: list[str]) -> pd.DataFrame:
    """Successful episodes: members, and those of held-out tasks that no house trains on."""
    tasks = {house: pd.read_parquet(study / house / "curated" / "tasks.parquet") for house in houses}
    trained = {each for one in tasks.values() for each in one.loc[one["split"] == "train", "fingerprint"]}
    parts = []
    for house, known in tasks.items():
        episodes = pd.read_parquet(study / house / "curated" / "episodes.parquet")
        own = episodes[episodes["success"] == 1.0].drop(columns="split").merge(known, left_on="task_id", right_on="id")
        member = own["split"] == "train"
        parts.append(own[member | ((own["split"] == "held_out") & ~own["fingerprint"].isin(trained))].assign(member=member))
    return pd.concat(parts, ignore_index=True)


def episode_losses(model: Any, base: str, episodes: pd.DataFrame) -> NDArray[Any]:
    """The mean loss of what the agent said, in nats a token, by episode."""
    import torch

    tokenizer, found = load_tokenizer(base_folder(base)), []
    for spoken, tools in zip(episodes["messages"], episodes["tools"], strict=True):
        rendered = tokenizer.apply_chat_template(
            [with_arguments(one) for one in json.loads(spoken)],
            tools=json.loads(tools),
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids, said = (torch.tensor(rendered[key]) for key in ("input_ids", "assistant_masks"))
        with torch.no_grad():
            logits = model(ids[None].to(model.device)).logits[0, :-1].float().cpu()
        each = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")
        found.append(float(each[said[1:] == 1].mean()))
    return np.array(found)


def with_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as a mapping, as chat templates read them."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or []
    ]
    return {**message, "tool_calls": calls} if calls else message


def area(scores: NDArray[Any], member: NDArray[Any]) -> float:
    """The chance that a member scores above another episode; ties count half."""
    ranks = pd.Series(scores).rank().to_numpy()
    members = int(member.sum())
    return float((ranks[member].sum() - members * (members + 1) / 2) / (members * (len(member) - members)))


def area_with_interval(scores: NDArray[Any], member: NDArray[Any], tasks: NDArray[Any]) -> list[float]:
    """The area, and the 95% interval of a bootstrap over the tasks of either group."""
    chance, found = np.random.default_rng(0), []
    groups = [
        [np.flatnonzero((tasks == task) & (member == side)) for task in np.unique(tasks[member == side])]
        for side in (True, False)
    ]
    for _ in range(DRAWS):
        drawn = np.concatenate([group[i] for group in groups for i in chance.integers(len(group), size=len(group))])
        found.append(area(scores[drawn], member[drawn]))
    return [round(float(value), 3) for value in (area(scores, member), *np.quantile(found, [0.025, 0.975]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, required=True)
    parser.add_argument("--state", type=Path, help="another policy than the study's last global adapter")
    parser.add_argument("--houses", nargs="+", default=["ash", "birch", "cedar", "elm", "fir"])
    options = parser.parse_args()
    prepare_environment(None)
    state = options.state or options.study / "server" / "final"
    print(json.dumps(membership(options.study, state, options.houses), indent=2))


if __name__ == "__main__":
    main()
