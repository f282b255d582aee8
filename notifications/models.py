"""Every table of this app; each lives in the file of its subject."""

from __future__ import annotations

from notifications.deliveries import Delivery
from notifications.orders import Order, OrderEvent
from notifications.suppression import Suppression
from notifications.tokens import ApiToken
from notifications.webhooks.inbox import WebhookEvent

__all__ = ["ApiToken", "Delivery", "Order", "OrderEvent", "Suppression", "WebhookEvent"]
