"""Admin pages of orders, tokens, deliveries, webhooks and suppressed addresses."""

from notifications.admin import deliveries, orders, suppressions, tokens, webhook_events

__all__ = ["deliveries", "orders", "suppressions", "tokens", "webhook_events"]
