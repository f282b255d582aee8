"""An item knows the size of its letter's payload; those that were pinned before count as large ones."""

from django.db import migrations, models

MEGABYTE = 1024 * 1024
SAYS = "Bytes of its payload: how many may be in memory at once."


class Migration(migrations.Migration):
    dependencies = [("outbox", "0015_keys_compare_bytes")]

    operations = [
        migrations.AddField("replayitem", "size", models.BigIntegerField(default=MEGABYTE, help_text=SAYS)),
        migrations.AlterField("replayitem", "size", models.BigIntegerField(default=0, help_text=SAYS)),
    ]
