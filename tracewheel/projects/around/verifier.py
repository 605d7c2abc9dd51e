"""The check of what the program says. It sees the whole episode: make it yours."""

from __future__ import annotations

from tracewheel import Episode, Task, Verdict

LINES = 5  # programs say a word or two after the answer: what it cost, where its log is


class RightAnswer:
    """Success is a program that ends with the answer. Equal episodes get equal scores: no clock, no chance."""

    kind = "tracewheel.projects.around.verifier:RightAnswer"

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        """1 where the answer is one of the last lines, else 0; what was said last is kept beside the score."""
        printed = episode.final_state.get("program", {}).get("output", "")  # of a program; a logged line has its last message
        lines = [line.strip() for line in (printed or episode.final_text).splitlines() if line.strip()][-LINES:]
        return Verdict(float(task.goal["answer"] in lines), {}, answer="\n".join(lines)[:200])
