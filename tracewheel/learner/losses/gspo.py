"""GSPO (Zheng et al. 2025, "Group Sequence Policy Optimization", arXiv:2507.18071): one ratio per sequence."""

from __future__ import annotations

from torch import Tensor

from tracewheel.config import ClipConfig, GspoConfig
from tracewheel.learner.losses.clip import clip
from tracewheel.learner.losses.ratios import SurrogateTokens


def gspo(config: GspoConfig, tokens: SurrogateTokens) -> tuple[Tensor, Tensor]:
    """The clipped surrogate per token [B, T] of s = exp(mean of the log ratios over a row's action tokens).

    This is the paper's GSPO-token (section 4.3): each token has the value s and the gradient of its own
    log-probability times s. If the tokens of a row have one advantage, the sum over the row equals GSPO in value
    and gradient; otherwise each token follows its own advantage.
    """
    log_ratio, kept = tokens.log_ratio, tokens.kept
    mean = (log_ratio.detach() * kept).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1)
    own = log_ratio - log_ratio.detach() + mean
    return clip(ClipConfig(low=config.low, high=config.high, dual=config.dual), tokens._replace(log_ratio=own))
