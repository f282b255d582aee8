"""On MariaDB the ids of events come from a sequence: AUTO_INCREMENT of a partitioned table is not unique there.

After a deadlock inside INSERT … SELECT MariaDB 10.11 hands out the same values again. The primary key does
not notice in another partition, and within one the upsert would overwrite somebody else's order. (MySQL and
unpartitioned tables are not affected; a sequence also saves the table lock of AUTO_INCREMENT.)
"""

from django.db import migrations

from config.partitions.operations import NumberBySequence


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("buffer", "0002_claim_index")]

    operations = [NumberBySequence("BufferedEvent")]
