"""What all detectors find in a text, where the search for their signs points to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracewheel.config.curation import RedactionConfig
from tracewheel.traces.redaction.detector import Detector, Signs
from tracewheel.traces.redaction.known_values import Found
from tracewheel.traces.redaction.patterns import custom_detectors, secret_detectors
from tracewheel.traces.redaction.personal_data import personal_detectors
from tracewheel.traces.redaction.pseudonyms import is_pseudonym
from tracewheel.traces.redaction.unescaped import QUOTES, TEXT_IN_BASE64, Unescaped

ESCAPED = r"(?:\\u(?:00[0-7aA]|20[0-3])|\\/)"  # an escaped letter, digit, or separator of digits
ESCAPE = re.compile(ESCAPED.encode())
_PERCENT = r"(?:%)(?:25)*[2-7][0-9a-fA-F]"
_PUNCTUATION = re.compile(rf"[\s{{}}\[\],:{QUOTES}]*")


class Detection:
    """The detectors of a profile.

    Args:
        config: What to find, and what to allow.

    Attributes:
        detectors: Empty where redaction is off.
        signs: Searches for their signs, and for those of escapes and of base64.
        base64: The position of base64 that may hold text, in what `signs` finds.
    """

    def __init__(self, config: RedactionConfig) -> None:
        self._allowed = frozenset(config.allow)
        self._allowed_patterns = [re.compile(pattern) for pattern in config.allow_patterns]
        self.detectors: list[Detector] = []
        if config.enabled:
            self.detectors += [*custom_detectors(config.patterns), *secret_detectors()]
            self.detectors += personal_detectors(config.personal, config.phone_regions)
        hidden = [Detector("", sign, "") for sign in (_PERCENT, f"(?:{TEXT_IN_BASE64})", ESCAPED)]
        self._percent, self.base64 = len(self.detectors), len(self.detectors) + 1
        self.signs = Signs([*self.detectors, *hidden] if self.detectors else [])

    def candidates(self, written: str, signs: dict[int, list[int] | None]) -> Iterator[tuple[int, Found]]:
        """What detectors find in a text, with their doubts; it may overlap.

        Args:
            written: The text.
            signs: What `signs` finds in it.
        """
        for percent in (False, True) if self._percent in signs else (False,):
            text = Unescaped(written, percent=percent)
            for index, ends in (signs if text.plain is written else self.signs.detectors(text.plain)).items():
                if index < len(self.detectors):
                    detector = self.detectors[index]
                    yield from ((detector.doubt, item) for item in self._matches(detector, text, ends))

    def _matches(self, detector: Detector, text: Unescaped, ends: list[int] | None) -> Iterator[Found]:
        for match in detector.matches(text.text if detector.nested else text.plain, ends):
            start, end = match.span(detector.group)
            value = text.plain[start:end]
            identity = detector.identify(value)
            if identity is None or is_pseudonym(detector.kind, value) or self._is_allowed(value):
                continue
            if not _PUNCTUATION.fullmatch(value):  # what stands between two strings of JSON is not a value
                yield Found(*text.span(start, end), detector.kind, value, identity)

    def _is_allowed(self, value: str) -> bool:
        return value in self._allowed or any(pattern.fullmatch(value) for pattern in self._allowed_patterns)
