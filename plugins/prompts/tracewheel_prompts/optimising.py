"""One optimisation from its tasks to its figures: what the command and the stage of a run share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracewheel import DataError, content_hash, load_tasks, open_environment
from tracewheel_prompts.journal import Journal
from tracewheel_prompts.optimise import PromptAdapter, optimise
from tracewheel_prompts.players import Player, start_of
from tracewheel_prompts.prompt import Prompt
from tracewheel_prompts.reflection import Reflector
from tracewheel_prompts.settings import PromptSettings

BUDGETS = {"tokens", "reflections", "iterations"}  # a run that was killed may go on with more
SECTIONS = {"environment", "rollout", "evaluation", "rubric", "policy", "seed"}


class Optimising:
    """What is optimised, and on which tasks.

    Args:
        settings: Budgets and parts.
        player: The policy.
        curated: The curated folder; its held-out tasks are not read.

    Attributes:
        start: The prompt to begin with.
        budget: What it may cost, in a sentence.

    Raises:
        DataError: there are no training or no validation tasks.
    """

    def __init__(self, settings: PromptSettings, player: Player, curated: Path) -> None:
        self.settings, self.player, self._curated = settings, player, curated
        train, validation = (load_tasks(curated, split) for split in ("train", "validation"))
        self._train, self._validation = train[: settings.train_tasks], validation[: settings.validation_tasks]
        if not train or not validation:
            raise DataError(f"{curated}: has {len(train)} training and {len(validation)} validation tasks; both are needed")
        with open_environment(train[0].environment) as environment:
            self.start = start_of(player.config) or Prompt(system=environment.system_prompt)
            self._tools = {tool["function"]["name"]: tool["function"].get("description", "") for tool in environment.tools()}
        money = settings.reflection.budget
        self.budget = (
            f"Optimising {', '.join(settings.parts)} on {len(self._train)} training tasks; {len(self._validation)} validation "
            f"tasks choose. At most {settings.tokens:,} sampled tokens (up to {player.most_tokens:,} an episode), "
            f"{settings.reflections} replies of {settings.reflection.model}"
            + (f" for at most {money:g}" if money else "")
            + f", {settings.iterations} proposals."
        )

    @property
    def identity(self) -> str:
        """Hash of what the replies and the scores depend on."""
        settings = self.settings
        asked = settings.model_dump(mode="json", exclude=BUDGETS | {"reflection"})
        asked["reflection"] = settings.reflection.model_dump(mode="json", exclude=set(settings.reflection.HOW_ASKED))
        ids = [task.id for task in (*self._train, *self._validation)]
        sections = self.player.config.model_dump(mode="json", include=SECTIONS)
        return content_hash([asked, sections, self.player.identity, self.start.digest, ids])

    def run(self, journal: Path, log: Path) -> tuple[Prompt, dict[str, Any]]:
        """Optimise, from where the journal ends.

        Returns:
            The best prompt, and the figures with the ids of the tasks that were `seen`.

        Raises:
            DataError: as `optimise`, and where the journal is another run's.
        """
        settings = self.settings
        with Journal(journal, self.identity) as notes, Reflector(settings, notes) as reflector:
            adapter = PromptAdapter(
                settings, self.player, self.start, self._tools, self._train, self._validation, self._curated, notes, reflector
            )
            found = optimise(adapter, self._train, self._validation, log)
        kinds = {"train": self._train, "validation": self._validation}
        return found.prompt, {
            "prompt": found.prompt.to_record(),
            "before": self.start.to_record(),
            "policy": self.player.identity,
            "tokens": found.tokens,
            "iterations": found.iterations,
            "stopped": found.stopped,
            "candidates": found.candidates,
            "reflection": {
                "model": settings.reflection.model,
                "asked": reflector.asked,
                "unusable": reflector.unusable,
                "cost": reflector.cost,
            },
            "seen": {split: sorted({task.id for task in tasks} & set(found.seen)) for split, tasks in kinds.items()},
        }
