"""A file that beat and the Celery worker touch while they get on, for a probe that reads its age and asks no broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery.app.amqp import AMQP
from django.conf import settings
from kombu import Connection


def touch() -> None:
    """Touch CELERY_ALIVE_FILE: this process lives, and does not hang."""
    if settings.CELERY_ALIVE_FILE:
        with suppress(OSError):  # its age then tells
            Path(settings.CELERY_ALIVE_FILE).touch()


class PatientConnection(Connection):
    """While its broker is away a process does nothing but try again. That is progress: a new start would not help."""

    def ensure_connection(self, errback: Callable[..., object] | None = None, *args: Any, **kwargs: Any) -> Connection:
        def failed(error: Exception, interval: float) -> None:
            touch()
            if errback:
                errback(error, interval)

        return super().ensure_connection(failed, *args, **kwargs)


class PatientAMQP(AMQP):
    Connection = PatientConnection
