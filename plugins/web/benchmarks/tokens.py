"""Tokens of an episode where a page's lines are shown once, and where each observation repeats the page.

    python plugins/web/benchmarks/tokens.py

On pages on paper, in the tokens of the web's tiny base; nothing is played in a browser.
"""

from __future__ import annotations

import random

from tracewheel.chat.renderer import ChatRenderer
from tracewheel_projects import build_tokenizer
from tracewheel_web.miniwob.base_text import WORLD
from tracewheel_web.miniwob.environment import SYSTEM_PROMPT
from tracewheel_web.miniwob.paper import PAGES, Paper, played

EPISODES = 40  # of each page


class Repeating(Paper):
    """A page that is shown whole each time."""

    def listing(self) -> str:
        self.shown = set()
        return super().listing()


def main() -> None:
    renderer = ChatRenderer(build_tokenizer(WORLD.pieces()))
    print("| page | lines shown once | page repeated |\n|---|---:|---:|")
    totals = [0.0, 0.0]
    for name, make in PAGES.items():
        means = []
        for paper in (Paper, Repeating):
            made = (make(random.Random(f"{name}-{number}"), paper(SYSTEM_PROMPT)) for number in range(EPISODES))
            texts = (played(page, asked, calls) for asked, page, calls in made)
            means.append(sum(len(renderer.conversation_ids(text, WORLD.tools)[0]) for text in texts) / EPISODES)
        totals = [total + mean / len(PAGES) for total, mean in zip(totals, means, strict=True)]
        print(f"| {name} | {means[0]:.0f} | {means[1]:.0f} |")
    print(f"| all | {totals[0]:.0f} | {totals[1]:.0f} |")


if __name__ == "__main__":
    main()
