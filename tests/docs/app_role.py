"""Run as spillway_app by tests/docs/test_grants.py: prints, as JSON, what the database let it do."""

import json
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import django

django.setup()

from axes.models import AccessAttempt, AccessFailureLog, AccessLog  # noqa: E402 (after django.setup, as all below)
from django.contrib.auth.models import Permission, User  # noqa: E402
from django.contrib.contenttypes.models import ContentType  # noqa: E402
from django.db import DatabaseError, transaction  # noqa: E402
from django.db.migrations.recorder import MigrationRecorder  # noqa: E402
from django.test import Client  # noqa: E402

from config.admin.levers import Operator  # noqa: E402
from config.database.clock import database_now  # noqa: E402
from notifications.api.tokens import issue  # noqa: E402
from notifications.mail import suppression  # noqa: E402
from notifications.models import Suppression  # noqa: E402
from outbox.admin.workers import FORGET  # noqa: E402
from outbox.audit_log.hash_chain import seal  # noqa: E402
from outbox.audit_log.models import OperatorAction  # noqa: E402
from outbox.models import ActionSeal, OfferedRight, OutboxMessage, WorkerProcess  # noqa: E402
from throttler.models import Customer  # noqa: E402

Migration = MigrationRecorder.Migration


def log_in(password: str) -> int:
    return Client().post("/admin/login/", {"username": "boss", "password": password}).status_code


def delete_a_user() -> int:
    """Through the admin, somebody who pulled a lever."""
    gone = User.objects.create_user("gone", is_staff=True)
    client = Client()
    client.force_login(gone, "django.contrib.auth.backends.ModelBackend")
    suppression.add(["ada@example.com"], Operator("Gone", gone), "asked for it")
    client.logout()
    client.force_login(User.objects.get(username="boss"), "django.contrib.auth.backends.ModelBackend")
    client.post("/admin/auth/group/add/", {"name": "support"})
    status = client.post(f"/admin/auth/user/{gone.pk}/delete/", {"post": "yes"}).status_code
    assert not User.objects.filter(username="gone").exists()
    assert OperatorAction.objects.get(verb="suppress").actor_name == "Gone"
    return status


def order() -> int:
    """Through the API: an order, its payment, the mail about it."""
    token = issue("probe", Operator("test"))[1]

    def post(path: str, key: str, body: dict) -> dict:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
        return Client().post(path, json.dumps(body), content_type="application/json", headers=headers).json()

    made = post("/v1/orders", "one", {"user_email": "eve@example.com", "total_amount": 1999, "currency": "EUR"})
    post(f"/v1/orders/{made['id']}/pay", "two", {})
    return OutboxMessage.objects.count()


def log_out() -> bool:
    client = Client()
    client.post("/admin/login/", {"username": "boss", "password": "right"})
    client.post("/admin/logout/")
    return AccessLog.objects.filter(logout_time__isnull=False).exists()


def forget_a_worker() -> int:
    then = database_now() - timedelta(hours=1)
    times = {"since": then, "kept_since": then, "seen_at": then}
    row = WorkerProcess.objects.create(
        run=uuid4(), command="relay_outbox", host="gone", place="elsewhere", pid=7, **times
    )
    return FORGET.act([row.pk], Operator("test"), "scaled away").changed


def unlocked() -> int:
    """A failure that no longer counts is deleted by the next login."""
    AccessAttempt.objects.update(attempt_time=AccessAttempt.objects.get().attempt_time - timedelta(days=1))
    log_in("right")
    return AccessAttempt.objects.count()


def refused(act: Callable[[], object]) -> bool:
    """Whether the database refuses; what is not refused is not kept."""
    try:
        with transaction.atomic():
            act()
            transaction.set_rollback(True)
    except DatabaseError as error:
        return "denied" in str(error)
    return False


def main() -> None:
    User.objects.create_superuser("boss", password="right")
    kind = ContentType.objects.first()
    allowed = {
        "wrong password": log_in("wrong"),
        "right password": log_in("right"),
        "unlocked": unlocked(),
        "deleted user": delete_a_user(),
        "logged out": log_out(),
        "messages": order(),
        "sealed": seal(database_now()) > 0,
        "forgotten": forget_a_worker(),
        "lifted": suppression.lift([Suppression.objects.get().pk], Operator("test"), "asked for it"),
    }
    forbidden = {
        "insert a permission": refused(lambda: Permission.objects.create(content_type=kind, codename="x", name="x")),
        "change a permission": refused(lambda: Permission.objects.update(codename="x")),
        "delete a permission": refused(lambda: Permission.objects.all()._raw_delete("default")),
        "insert a type": refused(lambda: ContentType.objects.create(app_label="x", model="x")),
        "change a type": refused(lambda: ContentType.objects.filter(pk=kind.pk).update(model="x")),
        "insert a migration": refused(lambda: Migration.objects.create(app="x", name="x")),
        "change a migration": refused(lambda: Migration.objects.update(name="x")),
        "delete a migration": refused(lambda: Migration.objects.all()._raw_delete("default")),
        "delete a message": refused(lambda: OutboxMessage.objects.all()._raw_delete("default")),
        "delete a customer": refused(lambda: Customer.objects.all()._raw_delete("default")),
        "delete from the trail": refused(lambda: OperatorAction.objects.all()._raw_delete("default")),
        "change the trail": refused(lambda: OperatorAction.objects.update(reason="x")),
        "give the action to another": refused(lambda: OperatorAction.objects.update(actor_number=1)),
        "delete a seal": refused(lambda: ActionSeal.objects.all()._raw_delete("default")),
        "change a seal": refused(lambda: ActionSeal.objects.update(hash="x")),
        "delete a login": refused(lambda: AccessLog.objects.all()._raw_delete("default")),
        "change a login": refused(lambda: AccessLog.objects.update(username="x")),
        "delete a failed login": refused(lambda: AccessFailureLog.objects.all()._raw_delete("default")),
        "change a failed login": refused(lambda: AccessFailureLog.objects.update(username="x")),
        "say that a right was offered": refused(lambda: OfferedRight.objects.create(role="x", right="x")),
    }
    print(json.dumps({"allowed": allowed, "forbidden": forbidden}))


if __name__ == "__main__":
    main()
