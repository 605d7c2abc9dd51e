"""Which open session has the beginning of a new session's prompt.

Prompts are looked up in blocks of tokens, each by a digest of all up to its end, as in vLLM's prefix caching (Kwon et al.
2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention", arXiv:2309.06180).
"""

from __future__ import annotations

from tracewheel.engines.ragged_session import RaggedSession

BLOCK = 16


class PromptBeginnings:
    """The first prompts of open sessions."""

    def __init__(self) -> None:
        self._owners: dict[int, RaggedSession] = {}
        self._digests: dict[int, list[int]] = {}  # by session

    def find(self, session: RaggedSession) -> tuple[RaggedSession | None, int]:
        """The session that has most of this one's beginning, and how many tokens; what has no owner becomes this one's.

        One token at least is left to read.
        """
        digests = self._digests.setdefault(session.number, _digests(session.ids))
        found: tuple[RaggedSession | None, int] = (None, 0)
        for number, digest in enumerate(digests, 1):
            owner = self._owners.setdefault(digest, session)
            length = number * BLOCK
            if owner is not session and owner.ids[:length] == session.ids[:length]:
                found = (owner, length)
        return found

    def forget(self, session: RaggedSession) -> None:
        """Drop a session that is closed."""
        for digest in self._digests.pop(session.number, []):
            if self._owners.get(digest) is session:
                del self._owners[digest]


def _digests(ids: list[int]) -> list[int]:
    """A digest for each whole block, of all tokens up to its end, without the last token."""
    digests, last = [], 0
    for stop in range(BLOCK, len(ids), BLOCK):
        last = hash((last, *ids[stop - BLOCK : stop]))
        digests.append(last)
    return digests
