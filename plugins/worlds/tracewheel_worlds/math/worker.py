"""A process that compares mathematical answers: JSON lines in, JSON lines out. Started by `tracewheel_worlds.math.pool` alone.

For each request it writes a line once it has read the right answer, and one with the result.
"""

from __future__ import annotations

import json
import resource
import sys

from tracewheel import end_with_parent

MEMORY = 4 * 2**30


def main() -> None:
    """Answer requests until standard input ends."""
    end_with_parent(int(sys.argv[1]))
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    configs = {"latex": LatexExtractionConfig(boxed_match_priority=0), "expr": ExprExtractionConfig()}
    say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        wanted = [configs[name] for name in asked["formats"]]
        gold = parse(asked["gold"], wanted, parsing_timeout=None)
        say({"gold": bool(gold)})
        try:
            answer = parse(asked["answer"], wanted, parsing_timeout=None)
            equal = verify(
                gold,
                answer,
                float_rounding=asked["digits"],
                strict=asked["strict"],
                allow_set_relation_comp=asked["sets"],
                timeout_seconds=None,
            )
            say({"equal": bool(equal), "read": bool(answer)})
        except Exception as error:  # whatever an answer makes sympy raise, it is not the right one
            say({"equal": False, "read": False, "why": type(error).__name__})


def say(message: dict[str, object]) -> None:
    """Write a line."""
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
