"""On MariaDB the ids of events come from a sequence: AUTO_INCREMENT of a partitioned table is not unique there.

After a deadlock inside INSERT … SELECT MariaDB 10.11 hands out the same values again. The primary key does
not notice in another partition, and within one the upsert would overwrite somebody else's order. (MySQL and
unpartitioned tables are not affected; a sequence also saves the table lock of AUTO_INCREMENT.)
"""

from django.db import migrations

TABLE, SEQUENCE = "buffer_bufferedevent", "buffer_bufferedevent_ids"


def number_by_sequence(apps, schema_editor):
    if not is_mariadb(schema_editor.connection):
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) + 1 FROM {TABLE}")
        (first,) = cursor.fetchone()
    schema_editor.execute(f"CREATE SEQUENCE {SEQUENCE} START WITH {first} CACHE 10000")
    schema_editor.execute(f"ALTER TABLE {TABLE} MODIFY id bigint NOT NULL DEFAULT (NEXT VALUE FOR {SEQUENCE})")


def number_by_itself(apps, schema_editor):
    if not is_mariadb(schema_editor.connection):
        return
    schema_editor.execute(f"ALTER TABLE {TABLE} MODIFY id bigint NOT NULL AUTO_INCREMENT")
    schema_editor.execute(f"DROP SEQUENCE {SEQUENCE}")


def is_mariadb(connection):
    return connection.vendor == "mysql" and connection.mysql_is_mariadb


class Migration(migrations.Migration):
    dependencies = [("buffer", "0002_claim_index")]

    operations = [migrations.RunPython(number_by_sequence, number_by_itself, atomic=False)]
