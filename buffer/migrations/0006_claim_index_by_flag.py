"""MySQL and MariaDB: an event that goes from claimed to sent leaves the claim's index alone."""

from django.db import migrations

from config.partitions.operations import IndexByFlag


class Migration(migrations.Migration):
    dependencies = [("buffer", "0005_mariadb_ledger_ids")]

    operations = [
        IndexByFlag(
            "BufferedEvent",
            "bufferedevent_open",
            flag="is_pending",
            before=["status", "stream", "location_id", "id"],
        ),
    ]
