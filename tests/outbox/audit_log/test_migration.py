"""The migration keeps what was recorded: the actor's key becomes a number that no account can take along."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection

from outbox.audit_log.models import OperatorAction


@pytest.mark.django_db(transaction=True)
def test_actions_keep_their_actor_and_outlive_the_account(tables):
    ann = User.objects.create(username="ann")
    old = tables.as_of("0006_letter_excerpt").get_model("outbox", "OperatorAction").objects
    words = {"verb": "hold", "subject": "Bucket 7", "reason": "test", "result": "done", "created_at": ann.date_joined}
    old.create(actor_id=ann.pk, actor_name="Ann", **words)
    old.create(actor=None, actor_name="root, by command", **words)
    old.create(actor_id=ann.pk, actor_name="Ann", **words | {"subject": "Customer C-7"})
    old.create(actor_id=ann.pk, actor_name="Ann", **words | {"detail": {"letter": "x-1"}})
    tables.migrate()
    assert OperatorAction.objects.about("throttler.customer", "C-7").count() == 1
    assert OperatorAction.objects.about("outbox.deadletter", "x-1").count() == 1
    OperatorAction.objects.exclude(subject_type="").delete()
    number = ann.pk
    ann.delete()
    found = list(
        OperatorAction.objects.order_by("pk").values_list("actor_number", "actor_name", "subject_type", "before")
    )
    assert found == [(number, "Ann", "", None), (None, "root, by command", "", None)]
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, OperatorAction._meta.db_table)
    assert not [name for name, said in constraints.items() if said["foreign_key"]]
