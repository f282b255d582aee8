"""App configuration of throttler."""

from django.apps import AppConfig


class ThrottlerConfig(AppConfig):
    name = "throttler"
    verbose_name = "Throttled notifications"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from throttler import checks  # noqa: F401 (importing registers them)
