"""The refund desk: an agent that asks a customer what it must know, and refunds, exchanges, cancels or refuses by policy."""

from tracewheel.environments.refund_desk.environment import RefundDeskEnvironment

__all__ = ["RefundDeskEnvironment"]
