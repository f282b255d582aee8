"""Admin pages of orders, tokens, deliveries, webhooks and suppressed addresses."""

from notifications.admin import mail, orders, tokens

__all__ = ["mail", "orders", "tokens"]
