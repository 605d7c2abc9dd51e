"""The check of what the program says. It sees the whole episode: make it yours."""

from __future__ import annotations

from tracewheel import Episode, Task, Verdict

LINES = 5  # programs say a word or two after the answer: what it cost, where its log is


class RightAnswer:
    """Success is a program that ends with the answer. Equal episodes get equal scores: no clock, no chance."""

    kind = "tracewheel_projects.around.verifier:RightAnswer"

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        """1 where the answer is one of the last lines, else 0; what was said last is kept beside the score.

        Lines of what the program printed, and of what the model said last: some programs draw boxes around that.
        """
        printed = episode.final_state.get("program", {}).get("output", "")  # a logged line has none
        said = [line for text in (printed, episode.final_text) for line in last_lines(text)]
        return Verdict(float(task.goal["answer"] in said), {}, answer="\n".join(said)[-200:])


def last_lines(text: str) -> list[str]:
    """The last lines that are not empty."""
    return [line.strip() for line in text.splitlines() if line.strip()][-LINES:]
