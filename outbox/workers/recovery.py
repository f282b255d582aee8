"""Recovery: ends the leases of workers that are gone."""

from __future__ import annotations

from django.apps import apps

from config.database.clock import database_now
from outbox.bookkeeping.leases import Claimable, recover
from outbox.delivery.rescue import rescue
from outbox.messages.models import OutboxMessage


def recover_claims() -> dict[str, int]:
    """End every expired lease; `{table: rows}`. Runs on the database's clock."""
    now = database_now()
    claimable = [model for model in apps.get_models() if issubclass(model, Claimable)]
    recovered = {model._meta.db_table: recover(model, now) for model in claimable if model.releasable}
    return {**recovered, OutboxMessage._meta.db_table: rescue(now)}
