"""Whether an answer is of the right one's form: math-verify reads past a sign that it does not know."""

from __future__ import annotations

import re

_RELATIONS = """
    ge geq geqq geqslant le leq leqq leqslant gt lt gg ll ne neq not nless ngtr nleq ngeq nleqslant ngeqslant in notin ni
    subset subseteq supset supseteq propto cong ncong prec succ preceq succeq perp models vdash less gtr lessgtr coloneqq
"""
# Commands that are part of a value, or that a comparison does not read past. Greek letters are names.
_VALUES = """
    frac dfrac tfrac cfrac sqrt pi cdot cdotp times div ast left right big bigl bigr Big Bigl Bigr bigg Bigg middle text
    textbf textrm textit textnormal textsf mathrm mathbf mathit mathsf mathbb mathcal mbox hbox rm bf it operatorname
    displaystyle textstyle limits circ degree infty ln log lg exp sin cos tan cot sec csc arcsin arccos arctan sinh cosh
    tanh binom dbinom tbinom choose over begin end quad qquad space emptyset varnothing boxed fbox overline underline
    angle hat vec bar infin imath jmath ell prime lbrace rbrace lbrack rbrack langle rangle setminus det max min gcd lcm
    sum int prod lim mathop phantom alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu
    nu xi rho varrho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
    pm mp cup cap or and lor land vee wedge percent approx
"""
RELATIONS, VALUES = frozenset(_RELATIONS.split()), frozenset(_VALUES.split())
COMMAND = re.compile(r"\\([a-zA-Z]+)")
RELATION = re.compile(r"[<>≤≥≠≮≯≰≱∈∉∋⊂⊃⊆⊇∝≅≪≫]|:=|!=")
BASE = re.compile(r"[\d)}\]]\s*\\?_\s*(?:\{\s*(\w+)\s*\}|(\w))")
SET = re.compile(r"\\\{|\\lbrace(?![a-zA-Z])")
TUPLE = re.compile(r"^\s*\\?(?:left)?\s*[(\[].*,.*[)\]]\s*$", re.DOTALL)


def other_form(answer: str, gold: str) -> str:
    r"""What of an answer makes it another sort of thing than the right one; "" where nothing does.

    >>> pairs = (r"\ge 42", "42"), (r"\{1, 2\}", "(1, 2)"), ("101_2", "101_3"), (r"\frac{6}{8}", "3/4")
    >>> [other_form(*pair) for pair in pairs]
    ['a relation', 'a set', 'another base', '']

    A relation is no value and a value no relation, a set is no tuple, a number with a base is one of that base (without one it
    is taken to be of the base asked for), and a command that builds no value must be the right answer's, too.
    """
    given, right = (set(COMMAND.findall(text)) for text in (answer, gold))
    if bool(given & RELATIONS or RELATION.search(answer)) != bool(right & RELATIONS or RELATION.search(gold)):
        return "a relation" if given & RELATIONS or RELATION.search(answer) else "no relation"
    for one, other, name in ((answer, gold, "a set"), (gold, answer, "a tuple")):
        if SET.search(one) and not SET.search(other) and TUPLE.search(other.strip("$ ")):
            return name
    if (bases := BASE.findall(answer)) and bases != BASE.findall(gold) and _plain(bases) != _plain(BASE.findall(gold)):
        return "another base"
    return " ".join(f"\\{name}" for name in sorted(given - right - VALUES - RELATIONS))


def _plain(bases: list[tuple[str, str]]) -> list[str]:
    return ["".join(base) for base in bases]
