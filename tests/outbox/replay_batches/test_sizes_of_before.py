"""The migration counts letters as large ones where their batch was pinned before items knew a size."""

from __future__ import annotations

import uuid

import pytest

from config.database.clock import database_now
from outbox.replay_batches.models import ReplayBatch, ReplayItem


@pytest.mark.django_db(transaction=True)
def test_letters_that_were_pinned_before_count_as_large(tables):
    batch = ReplayBatch.objects.create(verb="requeue", requested_by="ann", created_at=database_now())
    old = tables.as_of("0015_keys_compare_bytes").get_model("outbox", "ReplayItem").objects
    old.create(batch_id=batch.pk, letter=uuid.uuid4(), source="ledger", step="effect")
    tables.migrate()
    assert ReplayItem.objects.get().size == 1024 * 1024
