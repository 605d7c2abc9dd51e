"""A verifier that sees the whole episode, and says what it took for the answer and why it scored as it did.

rubric: {verifiers: [{kind: "examples.episode_verifier:Filled", args: {most_turns: 3}}]}
"""

from __future__ import annotations

from tracewheel import Episode, Task, Verdict


class Filled:
    """Full marks for the form's fields as the goal has them; half for a form that took more than `most_turns` turns.

    >>> from examples.form_environment import Form
    >>> from tracewheel.scoring.verifiers import episode_from
    >>> task = Form().task_from_log("Book for Ada.", {"goal": {"name": "Ada"}})
    >>> said = [{"role": "user", "content": task.prompt}, {"role": "assistant", "content": "Bob"}]
    >>> verdict = Filled().verify_episode(task, episode_from(said, 1, {"filled": {"name": "Bob"}}))
    >>> verdict.total, verdict.answer, verdict.explanation
    (0.0, 'name=Bob', 'name is not Ada')

    Args:
        most_turns: How many turns are enough.
    """

    kind = "examples.episode_verifier:Filled"

    def __init__(self, most_turns: int = 4) -> None:
        self._most_turns = most_turns

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        """The verdict follows from what is stored of the episode, so that scoring again gives the same."""
        filled = episode.final_state["filled"]
        wrong = [name for name, value in task.goal.items() if filled.get(name) != value]
        slow = episode.turns > self._most_turns
        why = [f"{name} is not {task.goal[name]}" for name in wrong]
        if slow:
            why.append(f"{episode.turns} turns, where {self._most_turns} are enough")
        return Verdict(
            total=0.0 if wrong else 0.5 if slow else 1.0,
            parts={"right": 1 - len(wrong) / len(task.goal), "slow": float(slow)},
            answer=", ".join(f"{name}={value}" for name, value in filled.items()),
            explanation="; ".join(why) or "all as asked",
        )
