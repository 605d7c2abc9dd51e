"""Steps a second of ours beside playwright alone, in one run: `plugins/web/benchmarks/steps.py [SECONDS [EPISODES ...]]`.

Both open an instance of the page, read it, type, and read it again, with so many episodes at once in one browser. Playwright
alone reads with its own accessibility snapshot and acts with its own locators. The two take turns, so that what else runs on
the machine slows both.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tracewheel_web.browser import ARGUMENTS, browser_path
from tracewheel_web.miniwob.environment import MiniwobArgs, MiniwobEnvironment

AT_ONCE, ROUNDS, FILLS = (1, 4, 16), 5, 4
PAGE = "login-user"


def episodes(maker: MiniwobEnvironment, count: int, seconds: float) -> float:
    """Steps a second of `count` environments."""
    until = time.monotonic() + seconds

    def play(number: int) -> int:
        environment, steps = MiniwobEnvironment(MiniwobArgs(pages=(PAGE,))), 0
        environment.resources = maker.shared
        task = maker.task_from_log("x", {"initial_state": {"page": PAGE, "seed": number}})
        while time.monotonic() < until:
            environment.reset(task)
            steps += 1
            fields = [item["ref"] for item in environment.view.items if item["role"] == "textbox"]
            for fill in range(FILLS):
                environment.step("fill", {"ref": fields[fill % 2], "text": f"text {fill}"})
                steps += 1
        environment.close()
        return steps

    began = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(play, range(count))) / (time.monotonic() - began)


async def alone(contexts: list[Any], origin: str, seconds: float) -> float:
    """Steps a second of playwright's own actions and snapshots."""
    began = time.monotonic()

    async def play(number: int, page: Any) -> int:
        steps = 0
        while time.monotonic() < began + seconds:
            await page.goto(f"{origin}/miniwob/{PAGE}.html?seed={number}")
            await page.aria_snapshot(mode="ai")
            steps += 1
            for fill in range(FILLS):
                await page.get_by_role("textbox").nth(fill % 2).fill(f"text {fill}")
                await page.aria_snapshot(mode="ai")
                await page.evaluate("[WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]")
                steps += 1
        return steps

    counts = await asyncio.gather(*(play(number, page) for number, page in enumerate(contexts)))
    return sum(counts) / (time.monotonic() - began)


async def main() -> None:
    from playwright.async_api import async_playwright

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    maker = MiniwobEnvironment(MiniwobArgs(pages=(PAGE,)))
    origin = maker.shared.server.origin
    print("| episodes at once | ours, steps a second | playwright alone | ratio: median (lowest, highest) |\n|---|---|---|---|")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path(), args=[*ARGUMENTS, "--no-sandbox"])
        for count in [int(text) for text in sys.argv[2:]] or AT_ONCE:
            size: Any = dict(zip(("width", "height"), MiniwobEnvironment.size, strict=True))
            contexts = [await (await browser.new_context(viewport=size)).new_page() for _ in range(count)]
            await asyncio.to_thread(episodes, maker, count, 1.0)  # opens the pages
            rounds = []
            for _ in range(ROUNDS):
                ours = await asyncio.to_thread(episodes, maker, count, seconds)
                rounds.append((ours, await alone(contexts, origin, seconds)))
            ratios = [ours / theirs for ours, theirs in rounds]
            middle = [statistics.median(values) for values in zip(*rounds, strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})"
            print(f"| {count} | {middle[0]:.1f} | {middle[1]:.1f} | {spread} |", flush=True)
        await browser.close()
    maker.close()


if __name__ == "__main__":
    asyncio.run(main())
