"""A backup of every table of ours, and its restoration: what a database looks like that lost its last hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.db import models, transaction

Backup = list[tuple[type[models.Model], list[Any]]]
APPS = ("buffer", "outbox")


def take(names: Sequence[str] = APPS) -> Backup:
    tables = [model for app in names for model in apps.get_app_config(app).get_models()]
    return [(model, list(model._default_manager.all())) for model in tables]


@transaction.atomic
def restore(backup: Backup) -> None:
    for model, rows in backup:
        models.QuerySet.delete(model._default_manager.all())  # some refuse to delete anything
        model._default_manager.bulk_create(rows, batch_size=500)
