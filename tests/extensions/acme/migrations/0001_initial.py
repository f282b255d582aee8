"""The first tables."""

from django.db import migrations, models

from spillway_ext import PartitionTable, uuid7


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel(
            name="DepotNote",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("depot", models.CharField(max_length=40)),
                ("text", models.TextField()),
                ("created_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Visit",
            fields=[
                ("id", models.UUIDField(default=uuid7, primary_key=True, serialize=False)),
                ("depot", models.CharField(max_length=40)),
            ],
        ),
        PartitionTable("acme.partitioned.VISITS"),
    ]
