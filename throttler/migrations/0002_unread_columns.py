"""Columns that owners wrote each second and nobody read."""

from django.db import migrations


class Migration(migrations.Migration):

    stops = ("run_throttler",)
    back = "throttler 0001"
    dependencies = [
        ("throttler", "0001_schema"),
    ]

    operations = [
        migrations.RemoveField(model_name="lane", name="epoch"),
        migrations.RemoveField(model_name="lane", name="next_due_at"),
        migrations.RemoveField(model_name="laneowner", name="demand"),
    ]
