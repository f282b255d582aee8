"""The app of the lowest layer: it registers the system checks."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    name = "config"
    verbose_name = "Spillway"

    def ready(self) -> None:
        from config import checks  # noqa: F401 (importing registers the checks)
        from config.partitions import ensure_after_migrate
        from config.telemetry.tracing import start_tracing

        post_migrate.connect(ensure_after_migrate)
        start_tracing()
