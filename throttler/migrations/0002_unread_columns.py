"""Columns that owners wrote each second and nobody read."""

from django.db import migrations, models


class Migration(migrations.Migration):

    stops = ("run_throttler",)
    back = "throttler 0001"
    dependencies = [
        ("throttler", "0001_schema"),
    ]

    operations = [
        # The way back makes the column again, beside rows that need a value in it.
        migrations.AlterField("lane", "epoch", models.BigIntegerField(default=0)),
        migrations.RemoveField(model_name="lane", name="epoch"),
        migrations.RemoveField(model_name="lane", name="next_due_at"),
        migrations.RemoveField(model_name="laneowner", name="demand"),
    ]
