"""App configuration of notifications."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "notifications"
    verbose_name = "Orders and e-mail"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from config.telemetry import metrics
        from notifications import checks  # noqa: F401 (importing registers them)
        from notifications.orders.models import OrderEvent

        metrics.EVENT_TYPES.update(OrderEvent.Kind.values)
