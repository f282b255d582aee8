"""Letters of a group come from an index that holds their ids in order; it replaces that of the key.

On PostgreSQL letters cannot be written while it is made (measured: docs/operations.md); MariaDB and MySQL go on.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("outbox", "0007_a_failure_groups")]

    operations = [
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(fields=['group', '-id'], name='deadletter_of_group'),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='group',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='letters', to='outbox.failuregroup'),
        ),
    ]
