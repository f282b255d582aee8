"""As 0003: on MariaDB AUTO_INCREMENT of a partitioned table hands out the same id twice after a deadlock."""

from django.db import migrations

TABLE, SEQUENCE = "buffer_inventorytracking", "buffer_inventorytracking_ids"


def number_by_sequence(apps, schema_editor):
    if not is_mariadb(schema_editor.connection):
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) + 1 FROM {TABLE}")
        (first,) = cursor.fetchone()
    schema_editor.execute(f"CREATE SEQUENCE {SEQUENCE} START WITH {first} CACHE 10000")
    schema_editor.execute(
        f"ALTER TABLE {TABLE} MODIFY id bigint NOT NULL DEFAULT (NEXT VALUE FOR {SEQUENCE})"
    )


def number_by_itself(apps, schema_editor):
    if not is_mariadb(schema_editor.connection):
        return
    schema_editor.execute(f"ALTER TABLE {TABLE} MODIFY id bigint NOT NULL AUTO_INCREMENT")
    schema_editor.execute(f"DROP SEQUENCE {SEQUENCE}")


def is_mariadb(connection):
    return connection.vendor == "mysql" and connection.mysql_is_mariadb


class Migration(migrations.Migration):
    dependencies = [("buffer", "0004_ledger")]

    operations = [migrations.RunPython(number_by_sequence, number_by_itself, atomic=False)]
