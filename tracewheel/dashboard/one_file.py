"""Several pages of the dashboard as the body of one HTML file: no script, links between them inside the file.

A page is taken as a visitor gets it and written again tag by tag. What stays is what `KEPT` and `ATTRIBUTES` name; links to
pages of the file lead to their places, links elsewhere become text, and forms leave what they show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from urllib.parse import urlsplit

VOID = {"br", "hr", "wbr", "img", "col"}
TEXT_TAGS = (
    "h1 h2 h3 h4 p div span section article main ol ul li dl dt dd table thead tbody tfoot tr th td caption colgroup col "
    "a b i em strong small code pre kbd abbr sub sup mark del ins time details summary figure figcaption hr br wbr blockquote"
)
SVG_TAGS = "svg g path rect circle line polyline polygon text tspan title desc defs marker ellipse"
KEPT = frozenset(TEXT_TAGS.split()) | frozenset(SVG_TAGS.split())
# Classes of what only serves somebody who clicks: the way here, filters, forms.
UNKEPT = {"crumbs", "controls", "label-form", "live", "anchor"}
# With all that is in them.
DROPPED = {"script", "style", "noscript", "button", "select", "textarea", "template", "iframe", "object", "embed"}
NAMES = {"id", "aria-labelledby", "aria-describedby", "aria-controls", "for"}
SHOWN = (
    "class role tabindex title colspan rowspan scope open lang dir datetime start value viewbox preserveaspectratio "
    "x y x1 x2 y1 y2 r rx ry cx cy d points width height transform text-anchor dominant-baseline dx dy fill stroke "
    "stroke-width stroke-dasharray opacity fill-opacity refx refy markerwidth markerheight orient"
)
ATTRIBUTES = NAMES | frozenset(SHOWN.split())
CASED = {"viewbox": "viewBox", "preserveaspectratio": "preserveAspectRatio", "refx": "refX", "refy": "refY"}
CASED |= {"markerwidth": "markerWidth", "markerheight": "markerHeight"}


@dataclass(frozen=True)
class Piece:
    """A page to be kept.

    Attributes:
        address: Its path and query in the dashboard.
        label: Its name in the file's own links.
        html: As a visitor gets it.
        folded: Whether it is behind a click, below the others.
    """

    address: str
    label: str
    html: str
    folded: bool = False


def together(pieces: Sequence[Piece]) -> tuple[str, dict[str, str]]:
    """Pages one below the other, and the anchors of those that are not folded with their labels."""
    anchors = {_key(piece.address): f"page{number}" for number, piece in enumerate(pieces)}
    parts: list[str] = []
    links: dict[str, str] = {}
    for number, piece in enumerate(pieces):
        label = escape(piece.label)
        article = f'<article id="page{number}" aria-label="{label}">{_rewritten(piece, f"p{number}-", anchors)}</article>'
        parts.append(f"<details><summary>{label}</summary>{article}</details>" if piece.folded else f"<hr>\n{article}")
        links |= {} if piece.folded else {f"page{number}": piece.label}
    return "\n".join(parts), links


def _rewritten(page: Piece, prefix: str, anchors: Mapping[str, str]) -> str:
    writer = _Writer(prefix, anchors)
    writer.feed(page.html)
    writer.close()
    return "".join(writer.parts)


def _key(address: str) -> str:
    parts = urlsplit(address)
    return parts.path.rstrip("/") + (f"?{parts.query}" if parts.query else "")


class _Writer(HTMLParser):
    """Writes what is in `<main>` again, without what could run, load or send."""

    def __init__(self, prefix: str, anchors: Mapping[str, str]) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._prefix, self._anchors = prefix, anchors
        self._inside, self._dropping = 0, ""
        self._depth = 0  # of the element that is dropped, in elements of its own kind
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropping:
            self._depth += tag == self._dropping
            return
        if tag == "main":
            self._inside += 1
            return
        if not self._inside:
            return
        values = dict(attrs)
        if tag in DROPPED or UNKEPT & set((values.get("class") or "").split()):
            self._dropping, self._depth = tag, 1
            return
        if tag == "a":
            target = self._target(values.get("href") or "")
            self._links.append("a" if target else "span")
            values = {**values, "href": None}
            self.parts.append(f'<a href="#{escape(target)}"{self._kept(values)}>' if target else f"<span{self._kept(values)}>")
        elif tag in KEPT:
            self.parts.append(f"<{tag}{self._kept(values)}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._dropping:
            self._depth -= tag == self._dropping
            if not self._depth:
                self._dropping = ""
            return
        if tag == "main":
            self._inside -= 1
        elif self._inside and tag == "a" and self._links:
            self.parts.append(f"</{self._links.pop()}>")
        elif self._inside and tag in KEPT and tag not in VOID and tag != "a":
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._inside and not self._dropping:
            self.parts.append(escape(data))

    def _target(self, href: str) -> str:
        """The place in the file that a link leads to; "" where it leads elsewhere."""
        if href.startswith("#"):
            return self._prefix + href[1:]
        return self._anchors.get(_key(href), "")

    def _kept(self, values: Mapping[str, str | None]) -> str:
        words = []
        for name, value in values.items():
            if name not in ATTRIBUTES and not re.fullmatch(r"aria-[a-z]+", name):
                continue
            if name in NAMES:
                value = " ".join(self._prefix + word for word in (value or "").split())
            words.append(f" {CASED.get(name, name)}" + ("" if value is None else f'="{escape(value)}"'))
        return "".join(words)
