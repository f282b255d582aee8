"""Recovery: no row stays with a worker that is gone."""

from __future__ import annotations

from django.apps import apps

from config.clock import database_now
from outbox.claims import Claimable, recover


def recover_claims() -> dict[str, int]:
    """Release every expired lease; `{table: rows}`. Runs on the database's clock."""
    now = database_now()
    claimable = [model for model in apps.get_models() if issubclass(model, Claimable)]
    return {model._meta.db_table: recover(model, now) for model in claimable}
