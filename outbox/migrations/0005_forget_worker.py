"""The right to forget a worker that was scaled away."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("outbox", "0004_counter_slots")]

    operations = [
        migrations.AlterModelOptions(
            name="workerprocess",
            options={
                "permissions": [("forget_workerprocess", "Can forget workers that are gone")],
                "verbose_name": "worker",
            },
        ),
    ]
