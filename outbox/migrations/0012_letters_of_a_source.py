"""Letters of a source come from indexes that hold their ids in order, in one state and in all.

On PostgreSQL letters cannot be written while they are made (measured: docs/operations.md); MariaDB and MySQL go on.
"""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("outbox", "0011_c_subjects")]

    operations = [
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["source", "status", "-id"], name="deadletter_source"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["source", "-id"], name="deadletter_of_source"),
        ),
    ]
