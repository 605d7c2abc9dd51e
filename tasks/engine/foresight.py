"""What a run will need, foreseen before it begins: the pass of its base, kept in the work folder, and the machine's limits."""

from __future__ import annotations

import functools
import json
import os
import platform
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tracewheel.config import DeepSpeedConfig, RetrainConfig
from tracewheel.core.errors import ConfigError, InfrastructureError, TracewheelError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.fingerprint import NUMERIC_PACKAGES, package_versions
from tracewheel.core.machine import available, resident
from tracewheel.core.store import write_whole
from tracewheel.core.types import Trace, canonical_json, content_hash
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.policy.adapters import base_folder, base_hash
from tracewheel.rollout.foresight import GIB, Foreseen, Lengths, foresee, most_sessions, seconds_of_stages
from tracewheel.rollout.measured_pass import PassFigures, PassRequest, measure_apart

MEASURED_FILE = "measured.json"
MAIN, GPU = "main memory", "GPU memory"
LIMIT_KEYS = {MAIN: "resources.memory_gib", GPU: "resources.gpu_memory_gib"}
TINY_BYTES = 4_000_000  # of weights; the shipped base has 2.6 million
READ = 100  # conversations whose lengths are taken
# Of the logged conversations of training tasks, those that the warm start will imitate, where they are not curated yet.
IMITATED = 0.5


@dataclass(frozen=True)
class Foresight:
    """What a run needs, what there is, and seconds by stage: of a unit of work, and of a call that loads the base for it."""

    needs: list[Foreseen]
    limits: dict[str, int | None]
    seconds: dict[str, float | None]
    each_call: dict[str, float]

    def check(self) -> None:
        """Check that the run fits.

        Raises:
            ConfigError: it does not; the message names the settings to change.
        """
        for need in self.needs:
            need.check(self.limits.get(need.device), LIMIT_KEYS[need.device])

    def says(self) -> str:
        """One line."""
        return "; ".join(need.says() for need in self.needs)


def is_tiny(config: RetrainConfig) -> bool:
    """Whether the base is as small as the one that rough figures were measured with, and runs on the CPU."""
    return config.policy.device == "cpu" and weights_bytes(config) <= TINY_BYTES


def weights_bytes(config: RetrainConfig) -> int:
    """Bytes of the base's weights on disk."""
    return sum(file.stat().st_size for file in base_folder(config.policy.base).glob("*.safetensors"))


def foresee_run(run: Run, curated: Path | None) -> Foresight | None:
    """What a run needs; None where the profile or the kind of run does not have it measured, or the pass failed.

    Args:
        run: The run.
        curated: The output of its curation, if there is one: its conversations are measured, else the raw logs'.

    Raises:
        ConfigError: the base's weights alone are larger than the limit, or the measured pass ran out of memory.
    """
    config = run.config
    many = any(isinstance(section.backend, DeepSpeedConfig) for section in (config.warm_start, config.learner))
    if config.resources.measure == "never" or many or (config.resources.measure == "auto" and is_tiny(config)):
        return None
    limits = limits_of(config)
    _check_weights(config, limits[MAIN])
    lengths = lengths_of(run, curated)
    try:
        figures = measured(run, lengths)
    except InfrastructureError as error:  # what cannot be measured may still run
        run.reporter.say(f"memory and time are not foreseen: {error}")
        return None
    loads = {"rollout": figures.load.seconds, "evaluate": 2 * figures.load.seconds}  # greedy and sampled rollouts
    return Foresight(foresee(config, figures, lengths), limits, seconds_of_stages(config, figures, lengths), loads)


def limits_of(config: RetrainConfig) -> dict[str, int | None]:
    """The bytes that a run may take of each memory; None where that is not known."""
    own, free = config.resources, available()
    limits: dict[str, int | None] = {MAIN: None if free is None else free + resident(), GPU: None}
    if config.policy.device.startswith("cuda"):
        import torch

        limits[GPU] = int(torch.cuda.mem_get_info(config.policy.device)[0])
    for device, gib in ((MAIN, own.memory_gib), (GPU, own.gpu_memory_gib)):
        if gib is not None:
            limits[device] = int(gib * GIB)
    return limits


def _check_weights(config: RetrainConfig, limit: int | None) -> None:
    """Refuse what cannot even be loaded, before it is tried."""
    if limit is not None and weights_bytes(config) / 2 > limit:  # float32 on disk may be half as large in memory
        raise ConfigError(
            f"policy.base: its weights are {weights_bytes(config) / GIB:.1f} GiB on disk, and {limit / GIB:.1f} GiB of main "
            f"memory are available ({LIMIT_KEYS[MAIN]}): use a smaller base, or a machine with more memory"
        )


def measured(run: Run, lengths: Lengths) -> PassFigures:
    """The figures of the base's pass: those kept in the work folder for this base, machine and settings, or new ones."""
    config = run.config
    row = -(-int(lengths.whole) // 64) * 64
    engine = getattr(config.rollout.engine, "slots", 1)
    request = PassRequest(config.model_dump(mode="json"), row, min(engine, most_sessions(config)))
    file, key = Path(config.work_dir) / MEASURED_FILE, _key(config, request)
    kept = read_json(file) if file.is_file() else {}
    if key not in kept:
        run.reporter.say("measuring a pass of the base, once for this machine")
        kept[key] = asdict(measure_apart(request))
        write_whole(file, canonical_json(kept) + "\n")
    return PassFigures.from_record(kept[key])


def _key(config: RetrainConfig, request: PassRequest) -> str:
    passes = config.warm_start.model_dump(mode="json", include={"lora", "weights", "layout", "gradient_checkpointing"})
    passes["tokens"] = min(config.warm_start.micro_batch_tokens, 2048)
    settings = {**config.policy.model_dump(mode="json"), "base": base_hash(config.policy.base), "threads": config.threads}
    where = [_machine(config.policy.device), package_versions(NUMERIC_PACKAGES), config.rollout.engine.kind]
    return content_hash([settings, passes, where, request.row_tokens, request.sessions])


@functools.cache
def _machine(device: str) -> list[Any]:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.is_file() else []
    names = [line for line in lines if line.startswith("model name")]
    found: list[Any] = [platform.machine(), names[:1], os.cpu_count()]
    if device.startswith("cuda"):
        import torch

        found.append(torch.cuda.get_device_name(device))
    return found


def lengths_of(run: Run, curated: Path | None) -> Lengths:
    """Lengths of logged conversations in tokens of the base, from the curation or, before it, from the logs."""
    from tracewheel.policy.loading import load_renderer

    config = run.config
    renderer = load_renderer(config.policy.base, config.policy.tool_format, config.policy.chat_template)
    if curated is not None and (curated / EPISODES_FILE).is_file():
        table = read_table(curated / EPISODES_FILE)
        train = table[table["split"] == "train"]
        if config.warm_start.demonstrations == "verified":
            train = train[train["success"] == 1.0]
        rows = train if len(train) else table
        texts = zip(rows["messages"].head(READ), rows["tools"].head(READ), strict=True)
        spoken = [(json.loads(messages), json.loads(tools)) for messages, tools in texts]
        demonstrations = len(train)
    else:
        spoken, demonstrations = _logged(config)
    found = []
    for messages, tools in spoken:
        try:
            ids, mask = renderer.conversation_ids(messages, tools)
        except (TracewheelError, StopIteration):
            continue  # a log that the template refuses is none that is trained on
        if 1 in mask:  # not a task that nobody has tried
            found.append((mask.index(1), sum(mask), len(ids)))
    return _summed(config, found, demonstrations)


def _logged(config: RetrainConfig) -> tuple[list[tuple[Any, Any]], int]:
    """The first logged conversations, and about how many the warm start will imitate: attempts at the training tasks."""
    from tracewheel.traces.discovery import find_logs
    from tracewheel.traces.readers.plugins import own_readers
    from tracewheel.traces.readers.reading import read_traces

    spoken: list[tuple[Any, Any]] = []
    prompts: Counter[str] = Counter()
    ingest = config.ingest
    for item in read_traces(find_logs(ingest), ingest.format, own_readers(ingest.readers), ingest.fields):
        if isinstance(item, Trace):
            prompts[next((str(message["content"]) for message in item.messages if message["role"] == "user"), "")] += 1
            if len(spoken) < READ and any(message["role"] == "assistant" for message in item.messages):
                spoken.append((item.messages, item.tools))
    logged = sum(prompts.values())
    return spoken, int(IMITATED * logged * min(1.0, config.curation.train_tasks / max(1, len(prompts))))


def _summed(config: RetrainConfig, rows: list[tuple[int, int, int]], demonstrations: int) -> Lengths:
    rollout = config.rollout
    if not rows:
        most = rollout.max_tokens
        return Lengths(most / 4, most / 4, float(most), most, demonstrations)
    prompt, sampled, whole = (sum(values) / len(rows) for values in zip(*rows, strict=True))
    # A policy may say more in its first turn than any log does.
    longest = max(max(row[2] for row in rows), min(rollout.max_tokens, int(prompt) + rollout.max_turn_tokens))
    return Lengths(prompt, sampled, whole, longest, demonstrations)
