"""Renames matters to incidents, and the page of subscriptions."""

from django.db import migrations, models

ONCE = models.UniqueConstraint(fields=["subscription", "incident", "episode", "phase", "number"], name="notice_once")


class Migration(migrations.Migration):
    stops = ("web", "notify_people")
    back = "outbox 0011"
    dependencies = [("outbox", "0011_message_trace")]

    operations = [
        migrations.RenameModel("Matter", "Incident"),
        migrations.RemoveConstraint("Incident", "matter_key"),
        migrations.AddConstraint(
            "Incident", models.UniqueConstraint(fields=["kind", "key"], name="incident_key")
        ),
        # A constraint does not follow a field to its new name.
        migrations.RemoveConstraint("Notice", "notice_once"),
        migrations.RenameField("Notice", "matter", "incident"),
        migrations.AddConstraint("Notice", ONCE),
        migrations.AlterField(
            "Notice",
            "said_over",
            models.BooleanField(default=False, help_text="It said already that the incident is over."),
        ),
        migrations.AlterModelOptions(
            "Subscription",
            {"permissions": [("manage_subscription", "Can manage subscriptions of teams and of others")]},
        ),
    ]
