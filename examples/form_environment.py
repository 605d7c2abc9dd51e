"""An environment with text turns and arguments: a form that asks, in words, for what it needs.

    environment: {kind: "examples.form_environment:Form", args: {fields: [name, date], patience: 2}}

A date is to be `2026-11-23`; after `patience` answers that are none, the form closes unfilled.
"""

from __future__ import annotations

import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tracewheel import Observation, Task, content_hash


class FormArgs(BaseModel):
    """What the form is like.

    Attributes:
        fields: What it asks for, in this order; `date` is checked.
        patience: How many wrong answers it takes before it closes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: tuple[str, ...] = ("name", "date")
    patience: int = Field(2, gt=0)


class Form:
    """A form that is filled in by talking.

    >>> from tracewheel.core.kinds import kind_text
    >>> from tracewheel.environments import make_environment
    >>> form = make_environment(kind_text("examples.form_environment:Form", {"fields": ["name"]}))
    >>> form.reset(form.task_from_log("Book for Ada.", {"goal": {"name": "Ada"}}))
    >>> form.reply("Ada").done, form.snapshot()
    (True, {'filled': {'name': 'Ada'}})
    """

    kind = "examples.form_environment:Form"
    tool_threads = 0  # calls take no time
    system_prompt = "Fill in the form: answer each question with the value alone."
    Args = FormArgs

    def __init__(self, args: FormArgs | None = None) -> None:
        self._args = args or FormArgs()

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        goal = logged["goal"]
        name = content_hash([prompt, goal])
        return Task(
            id=f"form-{name}",
            environment=self.kind,
            family="form",
            tier=1,
            prompt=prompt,
            initial_state={},
            goal=goal,  # for the verifier alone
            verifier="examples.episode_verifier:Filled",
            fingerprint=name,
        )

    def tools(self) -> list[dict[str, Any]]:
        return []  # it is filled in by words alone

    def reset(self, task: Task) -> None:
        self._filled: dict[str, str] = {}
        self._wrong = 0

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        return Observation("there are no tools here", error=True)  # a mistake of the policy is an observation

    def reply(self, text: str) -> Observation:
        """The form's next question; the last answer, or one too many that is wrong, ends the episode."""
        field = self._args.fields[len(self._filled)]
        if field == "date" and not _is_date(text.strip()):
            self._wrong += 1
            return Observation("Please give the date as YYYY-MM-DD.", error=True, done=self._wrong >= self._args.patience)
        self._filled[field] = text.strip()
        if len(self._filled) == len(self._args.fields):
            return Observation("Thank you.", done=True)
        return Observation(f"And the {self._args.fields[len(self._filled)]}?")

    def snapshot(self) -> dict[str, Any]:
        return {"filled": dict(self._filled)}


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True
