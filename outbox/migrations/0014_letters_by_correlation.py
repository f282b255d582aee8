"""Letters are found by their correlation id. On PostgreSQL they cannot be written while the index is made."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("outbox", "0013_payload_revisions")]

    operations = [
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["correlation_id"], name="deadletter_correlation"),
        ),
    ]
