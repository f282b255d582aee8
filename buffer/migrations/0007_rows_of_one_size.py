"""An order's row keeps its size when a batch takes it (docs/adr/0018)."""

import uuid

from django.db import migrations, models

from config.partitions.operations import FlagOfOneSize


class Migration(migrations.Migration):
    dependencies = [("buffer", "0006_claim_index_by_flag")]

    operations = [
        migrations.AlterField(
            model_name="bufferedevent",
            name="batch_id",
            field=models.UUIDField(
                default=uuid.UUID(int=0),
                db_default=models.Value(uuid.UUID(int=0).hex, output_field=models.CharField()),
                help_text="Nil as long as it waits.",
            ),
        ),
        FlagOfOneSize("BufferedEvent", "bufferedevent_open", flag="is_pending"),
    ]
