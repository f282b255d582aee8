"""As 0003: on MariaDB AUTO_INCREMENT of a partitioned table hands out the same id twice after a deadlock."""

from django.db import migrations

from config.partitions.operations import NumberBySequence


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("buffer", "0004_ledger")]

    operations = [NumberBySequence("InventoryTracking")]
