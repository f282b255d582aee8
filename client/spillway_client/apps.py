"""The Django app `spillway_client`: one table, and a check of its setting."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured


class SpillwayClient(AppConfig):
    name = "spillway_client"
    verbose_name = "Promises to Spillway"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register(check_setting)


def check_setting(app_configs: Any, **_: object) -> list[CheckMessage]:
    """E001: the setting is wrong, in the words in which publish() and relay_promises refuse it."""
    from spillway_client.options import read_options

    try:
        read_options()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="spillway_client.E001")]
    return []
