"""Counts by name as columns: SVG with classes only, and a text alternative."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tracewheel.dashboard.text import seen

WIDTH, HEIGHT, BOTTOM, LEFT = 720, 150, 22, 40


def column_chart(counts: Sequence[tuple[str, int]], what: str) -> Markup:
    """Columns in the order given, with a label at every few of them.

    Args:
        counts: Names and counts; at least one.
        what: What is counted, for the text alternative.
    """
    most = max(count for _, count in counts) or 1
    step = (WIDTH - LEFT) / len(counts)
    every = -(-len(counts) // 7)
    floor = HEIGHT - BOTTOM
    parts = [
        Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH, floor, floor),
        Markup('<text x="{}" y="12" text-anchor="end">{}</text>').format(LEFT - 6, f"{most:,}"),
    ]
    for place, (name, count) in enumerate(counts):
        height = (floor - 8) * count / most
        x = LEFT + place * step
        title = seen(f"{name}: {count:,} {what}")
        parts.append(
            Markup('<rect class="column" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>').format(
                x + step * 0.1, floor - height, max(1.0, step * 0.8), height, title
            )
        )
        if place % every == 0:
            parts.append(
                Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                    x + step / 2, HEIGHT - 6, seen(name[:16])
                )
            )
    first, last = counts[0][0], counts[-1][0]
    says = seen(f"{sum(count for _, count in counts):,} {what} from {first} to {last}; at most {most:,}")
    return Markup('<svg class="columns" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, says, Markup("").join(parts)
    )
