"""The distributions that tokens are drawn from, at the cost of one pass over the logits.

A token is found by its cumulated probability in two steps: among sums of blocks of the vocabulary, then within one
block. So only a few thousand numbers of a row are cumulated, in float64, whatever the size of the vocabulary. Top-p
sorts only the tokens that may belong to the nucleus. What is asked of a row is a tensor of the CPU wherever the logits are:
to look at it, a GPU need not be waited for.

Legend: R rows, V tokens of the vocabulary, B blocks, K tokens that may be in the nucleus.
"""

from __future__ import annotations

import torch

BLOCK = 256
BELOW_ONE = 1.0 - 1e-12  # the largest share of a mass that is looked for: its token has a probability above 0
SEARCHES = 6  # halvings of the range of the nucleus's smallest probability, in logarithms
SLACK = 1e-5  # by how much the float32 probabilities of a row may miss a sum of 1


class TokenDistribution:
    """The softmax of R rows of logits at their temperatures.

    Args:
        logits: [R, V], float32.
        temperatures: [R, 1], of the CPU.
    """

    def __init__(self, logits: torch.Tensor, temperatures: torch.Tensor) -> None:
        self._logits = logits if bool((temperatures == 1).all()) else logits / temperatures.to(logits.device)
        self._probabilities = self._logits.softmax(dim=-1)
        # The most likely token has exp(0) over the sum: the normaliser without another pass over the exponentials.
        highest, largest = (values.amax(dim=-1, keepdim=True) for values in (self._logits, self._probabilities))
        self._normaliser = highest - largest.log()

    def logprobs(self, tokens: torch.Tensor) -> torch.Tensor:
        """The log-probabilities [R, 1] of `tokens` [R, 1]."""
        return self._logits.gather(1, tokens) - self._normaliser

    def draw(self, uniforms: torch.Tensor, top_p: torch.Tensor, greedy: torch.Tensor) -> torch.Tensor:
        """Inverse-transform sampling, row by row. All arguments are tensors of the CPU.

        Top-p (Holtzman et al. 2020) keeps the fewest most likely tokens that hold at least `top_p`.

        Args:
            uniforms: [R, 1] in [0, 1), float64.
            top_p: [R, 1], float64.
            greedy: [R, 1]; where true, the most likely token is taken.

        Returns:
            Tokens [R, 1], where the logits are.
        """
        device = self._logits.device
        tokens = torch.empty_like(greedy, dtype=torch.long, device=device)
        nucleus = ~greedy & (top_p < 1.0)
        for rows, draw in ((greedy, self._most_likely), (nucleus, _draw_from_nucleus), (~(greedy | nucleus), _draw)):
            if bool(rows.all()):
                return draw(self._probabilities, uniforms.to(device), top_p.to(device))
            if bool(rows.any()):
                some = rows[:, 0].nonzero()[:, 0]
                wanted = [asked[some].to(device) for asked in (uniforms, top_p)]
                some = some.to(device)
                tokens[some] = draw(self._probabilities[some], *wanted)
        return tokens

    @staticmethod
    def _most_likely(probabilities: torch.Tensor, uniforms: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
        return probabilities.argmax(dim=-1, keepdim=True)


def _draw(probabilities: torch.Tensor, uniforms: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Tokens [R, 1] by `probabilities` [R, V]."""
    vocabulary = probabilities.shape[1]
    whole = vocabulary - vocabulary % BLOCK
    sums = [probabilities[:, :whole].unflatten(1, (-1, BLOCK)).sum(-1)] if whole else []
    if whole < vocabulary:
        sums.append(probabilities[:, whole:].sum(-1, keepdim=True))
    blocks = torch.cat(sums, dim=1).double()
    block = _find(blocks, uniforms)
    mass = blocks.cumsum(dim=1)
    reached = uniforms.clamp(max=BELOW_ONE) * mass[:, -1:] - (mass.gather(1, block) - blocks.gather(1, block))
    ids = block * BLOCK + torch.arange(min(BLOCK, vocabulary), device=block.device)
    inside = probabilities.gather(1, ids.clamp(max=vocabulary - 1)).double() * (ids < vocabulary)
    return block * BLOCK + _find(inside, reached / blocks.gather(1, block))


def _draw_from_nucleus(probabilities: torch.Tensor, uniforms: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Tokens [R, 1] by `probabilities` [R, V], each row within its `top_p` [R, 1] < 1.

    Where the tokens above some probability hold `top_p`, none below it is in the nucleus. Such a bound is (1 - top_p) / V:
    all tokens below it hold at most 1 - top_p together. A search finds a higher one.
    """
    least = ((1.0 - top_p - SLACK).clamp(min=0.0) / probabilities.shape[1]).float()
    most, wanted = probabilities.amax(dim=1, keepdim=True), top_p + SLACK
    for _ in range(SEARCHES):
        middle = (least * most).sqrt()
        enough = (probabilities * (probabilities > middle)).sum(dim=1, keepdim=True) >= wanted
        least, most = torch.where(enough, middle, least), torch.where(enough, most, middle)
    possible = probabilities > least
    counts = possible.sum(dim=1, keepdim=True)
    rows, ids = possible.nonzero(as_tuple=True)
    places = torch.arange(len(rows), device=rows.device) - (counts.cumsum(dim=0) - counts)[rows, 0]
    shape = (len(probabilities), int(counts.max()))
    tokens = ids.new_zeros(shape).index_put_((rows, places), ids)
    found = top_p.new_zeros(shape).index_put_((rows, places), probabilities[rows, ids].double())
    descending, order = found.sort(dim=-1, descending=True, stable=True)
    before = descending.cumsum(dim=-1) - descending
    kept = torch.zeros_like(found).scatter(1, order, descending * (before < top_p))
    return tokens.gather(1, _find(kept, uniforms))


def _find(masses: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """The places [R, 1] where the cumulated `masses` [R, K], float64, exceed `shares` [R, 1] of their sums."""
    cumulated = masses.cumsum(dim=1)
    return torch.searchsorted(cumulated, shares.clamp(0.0, BELOW_ONE) * cumulated[:, -1:], right=True)
