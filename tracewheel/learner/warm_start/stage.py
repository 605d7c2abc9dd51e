"""The warm start: supervised fine-tuning of a LoRA adapter, or of the whole model, on logged episodes.

The renderer of the rollouts gives token ids and masks, so the policy imitates exactly the tokens it would sample; the
loss is on assistant tokens only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracewheel.config import WarmStartSections
from tracewheel.core.errors import DataError
from tracewheel.core.files import write_json
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.learner.backends import processes
from tracewheel.learner.warm_start.demonstrations import demonstration_examples, with_replay
from tracewheel.learner.warm_start.selection import episodes_to_imitate
from tracewheel.policy.limits import read_token_ids


def warm_start(
    config: WarmStartSections, curated: Path, out: Path, demonstrations: str, begin: Callable[[Any], object] | None = None
) -> dict[str, float]:
    """Train the warm start on the training split's episodes; writes `adapter/` or `model/`, and `metrics.json`.

    Args:
        curated: The curation stage's output.
        demonstrations: "verified" for episodes that passed when re-executed, "all" for every logged one, "replay"
            for the replay text alone (a control that shows what imitation adds), "none" for an untrained adapter.
        begin: Given the fresh model before its optimiser is made: to load weights, or hold some fixed. Not with DeepSpeed.

    Raises:
        DataError: there is nothing to learn from.
        ConfigError: the replay text is of another tokenizer.
        LeakError: an extra demonstration belongs to a task outside the training split.
    """
    if config.warm_start.backend.kind == "deepspeed" and not processes.started():
        from tracewheel.learner.backends.launch import warm_start_by_processes

        return warm_start_by_processes(config, curated, out, demonstrations)
    import torch

    from tracewheel.learner.warm_start.fine_tuning import fine_tune, write_untrained
    from tracewheel.policy.loading import policy_renderer

    torch.set_num_threads(config.threads)
    settings = config.warm_start
    if demonstrations == "none":
        write_untrained(config, out)
        return _written({"demonstrations": 0.0, "examples": 0.0, "steps": 0.0, "tokens": 0.0}, out)
    episodes = episodes_to_imitate(settings, curated, demonstrations)
    renderer = policy_renderer(config.policy)
    left_out = Counter[str]()
    examples = demonstration_examples(episodes, renderer, settings.classes, left_out)
    n_demonstrations = len(examples)
    if settings.replay.path and settings.replay.share:
        replay = read_token_ids(Path(settings.replay.path), config.policy.base, "warm_start.replay.path")
        examples = with_replay(examples, replay, settings.replay.share, config.seed)
    if demonstrations == "replay":
        examples = examples[n_demonstrations:]
    if not examples:
        raise DataError(
            f"{curated / EPISODES_FILE}: no example of {', '.join(settings.classes)} and no replay text to learn from"
            + "".join(f"; {count} left out: {reason}" for reason, count in left_out.most_common())
        )
    figures = fine_tune(config, examples, out, begin)
    metrics = {"demonstrations": n_demonstrations, "examples": len(examples), **figures}
    metrics |= {f"left_out.{reason.replace(' ', '_')}": float(count) for reason, count in sorted(left_out.items())}
    return _written(metrics, out)


def _written(metrics: dict[str, float], out: Path) -> dict[str, float]:
    if processes.is_first():
        write_json(out / "metrics.json", metrics)
    return metrics
