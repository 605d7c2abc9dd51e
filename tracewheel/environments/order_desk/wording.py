"""How customers ask for the work of each family: in parentheses stand alternatives, one of which is said."""

from __future__ import annotations

import random
import re

ALTERNATIVES = re.compile(r"\(([^()]*)\)")

REQUESTS = {
    "item": (
        "(Refund|Please refund|We must refund) the {item} of {customer}.",
        "{customer} (sent|brought|shipped) the {item} back. (Refund it|Please refund it|It needs a refund).",
        "(Pay|Please pay|We should pay) {customer} back for the {item}.",
        "(Give|Issue|Grant) {customer} a (refund|full refund) for the {item}.",
        "The {item} of {customer} was (broken|faulty|damaged|the wrong size). (Refund it|Please refund it).",
        "{customer} (asks for|wants|demands) a refund of the {item}.",
        "(Pay back|Please pay back) what {customer} paid for the {item}.",
        "(Hi, this is|Here is) {customer}. (Please refund my {item}|I want a refund for my {item}).",
    ),
    "status": (
        "{customer} (does not want|no longer wants|does not need) the {item} (any more|now|after all).",
        "(Take back|Please take back|We take back) the {item} of {customer}.",
        "{customer} has (changed plans|other plans|no room) and (no longer needs|cannot use|gives up) the {item}.",
        "(Call off|Please call off) the {item} that {customer} (bought|ordered|chose).",
        "The {item} was a (mistake|bad idea|wrong choice), says {customer}.",
        "{customer} wants out of (buying|paying for) the {item}.",
        "{customer} found the {item} (cheaper|nicer) elsewhere and (drops it|does without it).",
        "(Hi, this is|Here is) {customer}. I do not want my {item} (any more|after all).",
    ),
    "shipped": (
        "(Refund|Please refund|Pay back) (all|all the|every one of the) shipped orders of {customer}.",
        "{customer} wants (every shipped order|all shipped orders|all that has shipped) (refunded|paid back).",
        "(Refund|Please refund|Pay back) (whatever|all that|everything that) (has|was) shipped to {customer}.",
        "{customer} sends (all shipped orders|every shipped order) back. (Refund them|Please refund them).",
        "No shipped order of {customer} was (wanted|needed). (Refund them|Pay them back).",
        "For {customer}, (refund|pay back) the orders that (have|were) shipped.",
        "{customer} (leaves us|gives up|quits), so (refund|pay back) (all shipped orders|what has shipped).",
        "(Hi, this is|Here is) {customer}. (Refund|Please refund) all my shipped orders.",
    ),
    "open": (
        "(Cancel|Please cancel|Call off) (all|all the|every one of the) open orders of {customer}.",
        "{customer} wants (every open order|all open orders|all that is open) (cancelled|called off).",
        "(Cancel|Please cancel|Call off) (whatever|all that|everything that) is (open|still open) for {customer}.",
        "{customer} gives up (all open orders|every open order). (Cancel them|Please cancel them).",
        "No open order of {customer} is (wanted|needed). (Cancel them|Call them off).",
        "For {customer}, (cancel|call off) the orders that are (open|still open).",
        "{customer} (leaves us|moves away|quits), so (cancel|call off) (all open orders|what is open).",
        "(Hi, this is|Here is) {customer}. (Cancel|Please cancel) all my open orders.",
    ),
}

# Other words for the same: what is learnt from the requests above has to be understood in these.
PARAPHRASES = {
    "item": (
        "{customer} should get the money for the {item} (back|again).",
        "The {item} came back from {customer}, so return what (was paid|it cost).",
        "Reimburse {customer} for the {item}.",
        "{customer} wants the price of the {item} returned.",
        "The {item} never reached {customer}, so hand back the money.",
        "{customer} is owed money for the {item}.",
    ),
    "status": (
        "{customer} would rather not keep the order of the {item}.",
        "Undo the {item} for {customer}.",
        "The {item} is (not wanted|unwanted) by {customer}.",
        "{customer} regrets having chosen the {item}.",
        "{customer} ordered the {item} by accident.",
        "Please free {customer} of the {item}.",
    ),
    "shipped": (
        "Reimburse {customer} for (everything delivered|all that went out).",
        "{customer} should get the money for (all that has gone out|whatever was delivered).",
        "Return the money for every parcel that left for {customer}.",
        "{customer} returns (everything delivered|whatever was sent) and wants the money.",
        "Hand back what {customer} paid for (deliveries|goods delivered).",
        "{customer} is owed money for (each delivery|all that was delivered).",
    ),
    "open": (
        "{customer} wants none of the orders that have not (shipped|gone out) yet.",
        "Stop everything that is still (open|waiting) for {customer}.",
        "Whatever of {customer} has not (gone out|left), stop it.",
        "(Drop|Stop) all that {customer} is still waiting for.",
        "Nothing that is pending for {customer} should be sent.",
        "(Keep back|Stop) every parcel of {customer} that has yet to leave.",
    ),
}


def request(templates: tuple[str, ...], customer: str, item: str | None, rng: random.Random) -> str:
    """A customer's request, worded by one of the templates.

    >>> request(("{customer} (wants|asks for) a {item}.",), "Mia Kent", "kettle", random.Random(0))
    'Mia Kent asks for a kettle.'
    """
    said = ALTERNATIVES.sub(lambda found: rng.choice(found[1].split("|")), rng.choice(templates))
    return said.format(customer=customer, item=item)


def is_paraphrase(words: str) -> bool:
    """Whether a request is worded by the paraphrases."""
    templates = [template for group in PARAPHRASES.values() for template in group]
    patterns = [template.replace(".", r"\.").format(customer=".+", item=".+") for template in templates]
    return any(re.fullmatch(pattern, words) for pattern in patterns)
