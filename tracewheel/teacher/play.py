"""Many episodes of a model behind an endpoint at once, within its limits, each paid for once."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import EndpointConfig, PlaySections
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.types import Task, content_hash
from tracewheel.engines.chat_reply import Message, Reply
from tracewheel.engines.reply_journal import ReplyJournal
from tracewheel.rollout.episode import EpisodeLimits
from tracewheel.teacher.attempt import Attempt, EndpointEpisode, Speak, attempt_episode

if TYPE_CHECKING:
    from tracewheel.engines.openai_chat import OpenAiChat


# Asks the endpoint for an episode's next reply.
Ask = Callable[[EndpointEpisode, list[Message], list[dict[str, Any]]], Reply]


class Journal(ReplyJournal):
    """The journal of a command that plays episodes.

    Attributes:
        ended: The episodes that have ended, by key.
    """

    def __init__(self, path: Path) -> None:
        self.ended: dict[str, Attempt] = {}
        super().__init__(path)

    def speaker(self, wanted: EndpointEpisode, ask: Ask) -> Speak:
        """The model's replies in one episode: the stored reply to the same conversation, else a new one."""
        return lambda messages, tools: self.reply(wanted.key, messages, tools, lambda: ask(wanted, messages, tools))

    def note(self, attempt: Attempt) -> None:
        """Store an episode that has ended; an unfinished one is continued another time."""
        if attempt.finished:
            self._write({"attempt": asdict(attempt)})
            self.ended[attempt.key] = attempt

    def _take_in(self, entry: dict[str, Any]) -> None:
        if "attempt" in entry:
            attempt = Attempt(**entry["attempt"])
            self.ended[attempt.key] = attempt
        else:
            super()._take_in(entry)


Progress = Callable[[int, int], None]
# The command decides how many samples; each episode has a temperature of its own.
NOT_OF_AN_EPISODE = EndpointConfig.HOW_ASKED | {"samples", "temperature"}


@dataclass(frozen=True)
class Played:
    """Episodes in the order of the request, the counts of this time's requests to the endpoint, and how long it took."""

    attempts: list[Attempt]
    counts: dict[str, int]
    seconds: float

    @property
    def stopped(self) -> str:
        """Why some episodes did not finish, for the user; empty when all did."""
        budget = [attempt for attempt in self.attempts if attempt.stop_reason == "budget"]
        if budget:
            return f"{len(budget)} of {len(self.attempts)} episodes were not played to their end: {budget[0].detail}"
        failed = [attempt for attempt in self.attempts if not attempt.finished]
        return f"{len(failed)} of {len(self.attempts)} episodes failed, the first: {failed[0].detail}" if failed else ""


def wanted_episodes(
    config: PlaySections, endpoint: EndpointConfig, tasks: list[Task], samples: int, temperature: float
) -> list[EndpointEpisode]:
    """`samples` episodes of each task, in the order of tasks, then samples."""
    settings = endpoint.model_dump(mode="json", exclude=NOT_OF_AN_EPISODE)
    wanted = []
    for task in tasks:
        for sample in range(samples):
            of_task = [task.id, task.environment, sample, temperature]
            key = content_hash([settings, config.rollout.max_turns, config.seed, *of_task])
            seed = int(content_hash([config.seed, task.id, sample], 8), 16)
            wanted.append(EndpointEpisode(task, sample, seed, temperature, key))
    return wanted


def play_all(
    config: PlaySections,
    endpoint: EndpointConfig,
    wanted: list[EndpointEpisode],
    *,
    journal: Path,
    progress: Progress | None = None,
) -> Played:
    """Play the episodes that the journal does not hold, and continue those that it holds in part.

    Args:
        config: `rollout.max_turns` and the time limits of `rollout` are used.
        endpoint: Who plays.
        journal: See `Journal`; the caller deletes it at the end.
        progress: Called with (episodes done, episodes in all).

    Raises:
        DataError: the file is no journal.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the very first episode got no answer, or none did.
        TimeLimitError: too many environments hang.
    """
    from tracewheel.engines.openai_chat import OpenAiChat

    started = time.monotonic()
    with Journal(journal) as notes, OpenAiChat(endpoint, spent=notes.spent) as chat:
        done = {item.key: notes.ended[item.key] for item in wanted if item.key in notes.ended}

        def note(attempt: Attempt) -> None:
            notes.note(attempt)
            done[attempt.key] = attempt
            if progress:
                progress(len(done), len(wanted))

        def ask(item: EndpointEpisode, messages: list[Message], tools: list[dict[str, Any]]) -> Reply:
            return chat.complete(messages, tools, item.seed, item.temperature)

        _play_missing(chat, notes, ask, [item for item in wanted if item.key not in done], config, endpoint, note)
    attempts = [done[item.key] for item in wanted]
    if attempts and all(attempt.stop_reason in ("infrastructure_failed", "refused") for attempt in attempts):
        raise InfrastructureError(f"all {len(attempts)} episodes of {endpoint.model} failed, the first: {attempts[0].detail}")
    return Played(attempts, dict(chat.counts), time.monotonic() - started)


def _play_missing(
    chat: OpenAiChat,
    notes: Journal,
    ask: Ask,
    missing: list[EndpointEpisode],
    config: PlaySections,
    endpoint: EndpointConfig,
    note: Callable[[Attempt], None],
) -> None:
    """Play episodes, the first one alone: an endpoint that does not answer is noticed before all wait for it."""
    limits = EpisodeLimits(config.rollout.step_seconds, config.rollout.episode_seconds)

    def play_one(item: EndpointEpisode) -> Attempt:
        return attempt_episode(notes.speaker(item, ask), item, config.rollout.max_turns, limits)

    if not missing:
        return
    first = play_one(missing[0])
    note(first)
    if first.stop_reason == "infrastructure_failed":
        raise InfrastructureError(f"{endpoint.model}: {first.detail}")
    with ThreadPoolExecutor(endpoint.concurrency) as pool:
        futures = [pool.submit(play_one, item) for item in missing[1:]]
        try:
            for future in as_completed(futures):
                note(future.result())
        except BaseException:
            chat.close()  # threads that wait for a rate limit would wait in vain
            pool.shutdown(wait=False, cancel_futures=True)
            raise
