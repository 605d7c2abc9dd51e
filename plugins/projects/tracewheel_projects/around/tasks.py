"""The tasks of the program: questions with answers. The program brings its own tools, so this world has none."""

from __future__ import annotations

from typing import Any

from tracewheel import DataError, Observation, Task, content_hash


class Questions:
    """Tasks from lines of `tasks.jsonl`: `environment` holds the `answer`, which only the verifier sees."""

    kind = "tracewheel_projects.around.tasks:Questions"  # as in the profile
    system_prompt = ""

    def tools(self) -> list[dict[str, Any]]:
        """None: the program has its own."""
        return []

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        """The task of a line."""
        if not isinstance(logged.get("answer"), str):
            raise DataError("'environment' needs an 'answer', a text")
        name = content_hash([prompt, logged["answer"]])
        return Task(
            id=name,
            environment=self.kind,
            family=str(logged.get("family", "questions")),  # the gate looks at each family
            tier=1,
            prompt=prompt,
            initial_state={},
            goal={"answer": logged["answer"]},
            verifier="tracewheel_projects.around.verifier:RightAnswer",
            fingerprint=name,
        )

    def reset(self, task: Task) -> None:
        """Begin an episode: there is nothing to set up."""

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """Calls go to the program's own tools, not here."""
        return Observation(f"error: no tool named {tool[:64]}", error=True)

    def snapshot(self) -> dict[str, Any]:
        """No state: what the program printed is in the episode."""
        return {}
