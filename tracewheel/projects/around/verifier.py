"""The check of what the program says. It sees the whole episode: make it yours."""

from __future__ import annotations

from tracewheel import Episode, Task, Verdict


class RightAnswer:
    """Success is a program that ends with the answer. Equal episodes get equal scores: no clock, no chance."""

    kind = "tracewheel.projects.around.verifier:RightAnswer"

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        """1 where the last line is the answer, else 0; what was taken for the answer is kept beside the score."""
        printed = episode.final_state.get("program", {}).get("output", "")  # of a program; a logged line has its last message
        said = (printed or episode.final_text).strip().rpartition("\n")[2].strip()
        return Verdict(float(said == task.goal["answer"]), {}, answer=said[:200])
