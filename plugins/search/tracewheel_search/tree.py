"""A tree of turns, and which node is tried next: UCT (Kocsis and Szepesvári 2006), one simulation a try.

A node is the conversation up to the end of a turn; its children are the turns that the policy said next. A simulation goes down
to a node, lets the policy play on to the end, and adds every new turn to the tree: no sampled token is thrown away. Equal turns
are one child.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

TurnIds = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """A turn, reached by those of its parents.

    Attributes:
        parent: None for the root, before the first turn.
        depth: Turns up to here.
        source: The first trajectory through it, whose first `depth` turns lead here.
        visits: Simulations with a value that went through it.
        total: The sum of their values.
        drawn: How often a next turn was sampled here.
        ended: The episode ends with this turn.
        children: By the ids of the turn.
    """

    parent: Node | None = None
    depth: int = 0
    source: str = ""
    visits: int = 0
    total: float = 0.0
    drawn: int = 0
    ended: bool = False
    children: dict[TurnIds, Node] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The mean of its simulations; NaN before the first."""
        return self.total / self.visits if self.visits else math.nan

    def path(self) -> Iterator[Node]:
        """This node and those above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


def upper_bound(node: Node, exploration: float) -> float:
    """UCB1 of a child: its value + c sqrt(ln N / n), with n visits of it and N of its parent."""
    assert node.parent is not None
    return node.value + exploration * math.sqrt(math.log(node.parent.visits) / node.visits)


class Tree:
    """The tree of one task.

    Args:
        width: Turns sampled at a node before one of its children is chosen.
        exploration: c of UCB1, for values from 0 to 1.
    """

    def __init__(self, width: int, exploration: float) -> None:
        self.root = Node()
        self._width = width
        self._exploration = exploration

    def select(self) -> Node | None:
        """The node at which the policy is asked next; None where every branch is sampled out."""
        node = self.root
        if not self._is_open(node):
            return None
        while node.drawn >= self._width:
            tried = [child for child in node.children.values() if self._is_open(child)]
            node = max(tried, key=lambda child: upper_bound(child, self._exploration) if child.visits else math.inf)
        return node

    def _is_open(self, node: Node) -> bool:
        """Whether a simulation through this node could find something new."""
        if node.ended:
            return False
        return node.drawn < self._width or any(map(self._is_open, node.children.values()))

    def add(self, node: Node, turns: Sequence[TurnIds], value: float | None, source: str, *, ended: bool = True) -> Node:
        """A simulation that went on from a node.

        Args:
            node: Where the policy was asked.
            turns: The new turns.
            value: What the whole episode is worth; None where that is unknown, and then it counts for no value.
            source: The trajectory.
            ended: Whether the episode ended with the last turn; else a critic valued it there.

        Returns:
            The node of its last turn.
        """
        if value is None or not math.isfinite(value):
            node.drawn += 1  # or an episode that always fails would be tried for ever
            return node
        for ids in turns:
            node.drawn += 1
            node = node.children.setdefault(ids, Node(node, node.depth + 1, source))
        node.ended = ended
        for each in node.path():
            each.visits += 1
            each.total += value
        return node

    def nodes(self) -> Iterator[Node]:
        """All nodes, parents before their children."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children.values()))
