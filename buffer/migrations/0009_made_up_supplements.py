"""A discarded supplement knows whether a later one has taken its quantities in."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("buffer", "0008_batch_content_hash")]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="made_up_at",
            field=models.DateTimeField(
                help_text="When a later supplement of the order took in what this discarded one would have said.",
                null=True,
            ),
        ),
    ]
