"""A channel remembers refusals in a row that may be its account's fault, and the letters it owes after such a pause."""

from django.db import migrations, models

import config.fields

RUN = "The cause of the last refusals in a row that may be ours."
PEOPLE = "Hashes of their recipients, each once."
PAUSED = "The cause of the refusals that paused it."
OWED = "Letters of that cause since then are requeued when it is resumed."


def cause(says):
    return config.fields.IdentifierField(max_length=32, default="", db_default="", help_text=says)


class Migration(migrations.Migration):
    dependencies = [("outbox", "0016_sizes_of_items")]

    operations = [
        migrations.AddField("channelstate", "refused_as", cause(RUN)),
        migrations.AddField(
            "channelstate",
            "refused_people",
            models.CharField(max_length=800, default="", db_default="", help_text=PEOPLE),
        ),
        migrations.AddField("channelstate", "refused_since", models.DateTimeField(null=True)),
        migrations.AddField("channelstate", "requeue_as", cause(PAUSED)),
        migrations.AddField("channelstate", "requeue_since", models.DateTimeField(null=True, help_text=OWED)),
    ]
