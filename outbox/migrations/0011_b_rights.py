"""The rights to edit a letter, to restore one, and to send again what may have been sent; in the database nothing but names."""

from django.db import migrations

LETTERS = [
    ("view_payload", "Can see payloads"),
    ("requeue_deadletter", "Can requeue dead letters"),
    ("resolve_deadletter", "Can resolve dead letters"),
    ("discard_deadletter", "Can discard dead letters"),
    ("restore_deadletter", "Can restore discarded dead letters"),
    ("edit_deadletter", "Can edit and requeue dead letters"),
]
MESSAGES = [
    ("cancel_outboxmessage", "Can cancel, retry and settle messages"),
    ("send_again_outboxmessage", "Can send again what may have been sent"),
]


class Migration(migrations.Migration):
    dependencies = [("outbox", "0011_a_trail")]

    operations = [
        migrations.AlterModelOptions("deadletter", {"permissions": LETTERS}),
        migrations.AlterModelOptions("outboxmessage", {"permissions": MESSAGES}),
    ]
