"""Every table of this app; each lives in the file of its subject."""

from __future__ import annotations

from notifications.api.tokens import ApiToken
from notifications.mail.deliveries import Delivery
from notifications.mail.suppression import Suppression
from notifications.orders.models import Order, OrderEvent
from notifications.webhooks.inbox import WebhookEvent

__all__ = ["ApiToken", "Delivery", "Order", "OrderEvent", "Suppression", "WebhookEvent"]
