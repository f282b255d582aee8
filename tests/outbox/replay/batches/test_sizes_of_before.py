"""The migration counts letters as large ones where their batch was pinned before items knew a size."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from config.database.clock import database_now
from outbox.replay.batches.models import ReplayBatch, ReplayItem

BEFORE = [("outbox", "0015_keys_compare_bytes")]


@pytest.fixture
def migrated_back(transactional_db):
    """The tables as they were; the newest ones again in the end."""
    latest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    executor = MigrationExecutor(connection)
    executor.migrate(BEFORE)
    yield executor.loader.project_state(BEFORE).apps
    MigrationExecutor(connection).migrate(latest)


@pytest.mark.django_db(transaction=True)
def test_letters_that_were_pinned_before_count_as_large(migrated_back):
    batch = ReplayBatch.objects.create(verb="requeue", requested_by="ann", created_at=database_now())
    old = migrated_back.get_model("outbox", "ReplayItem").objects
    old.create(batch_id=batch.pk, letter=uuid.uuid4(), source="ledger", step="effect")
    MigrationExecutor(connection).migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())
    assert ReplayItem.objects.get().size == 1024 * 1024
