"""The order desk: an agent that looks up a customer's orders, then cancels or refunds what it is asked to."""

from tracewheel.environments.order_desk.environment import OrderDeskEnvironment

__all__ = ["OrderDeskEnvironment"]
