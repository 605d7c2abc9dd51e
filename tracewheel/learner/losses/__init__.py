"""Losses of the policy and of the critic, one part per file.

Shapes: B sequences, T tokens; everything is [B, T], and [b, t] belongs to the token at [b, t]: its
log-probability, the value of the state before it. A loss has three independent parts: a per-token term, a mask
of the tokens that count, and an `Aggregation` to one number. Aggregations divide by totals of the whole
optimiser step (`StepTotals`), so the losses of its micro-batches add up to the loss of the step, however it is
cut: call `backward` on each, then step.

Values at masked tokens (prompt, observations, padding) may be anything, NaN and infinity included: they do not
change the loss, and their gradients are exactly 0.
"""
