"""MySQL and MariaDB have no partial indexes: there the state goes into the claim's index."""

from django.db import migrations

from config.partitions.operations import IndexWithoutPartial


class Migration(migrations.Migration):
    dependencies = [("outbox", "0002_outbox")]

    operations = [
        IndexWithoutPartial("OutboxMessage", ["channel", "state", "available_at", "id"], "outboxmessage_due"),
    ]
