"""MySQL and MariaDB have no partial indexes: there the status goes into the claim's index."""

from django.db import migrations

from config.partitions.operations import IndexWithoutPartial


class Migration(migrations.Migration):
    dependencies = [("buffer", "0001_initial")]

    operations = [
        IndexWithoutPartial("BufferedEvent", ["status", "stream", "location_id", "id"], "bufferedevent_open"),
    ]
