"""Resolving a dead letter is a right of its own."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("outbox", "0004_topic_replay")]

    operations = [
        migrations.AlterModelOptions(
            name="deadletter",
            options={
                "permissions": [
                    ("view_payload", "Can see payloads"),
                    ("requeue_deadletter", "Can requeue dead letters"),
                    ("resolve_deadletter", "Can resolve dead letters"),
                    ("discard_deadletter", "Can discard dead letters"),
                ],
            },
        ),
    ]
