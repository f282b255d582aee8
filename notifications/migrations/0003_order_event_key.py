"""An order's event is named by its message."""

from django.db import migrations, models

TABLE = "notifications_orderevent"


class OneStatement(migrations.SeparateDatabaseAndState):
    """On MySQL and MariaDB one ALTER: a server may refuse a table that is without a primary key between two."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor != "mysql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        else:
            schema_editor.execute(f"ALTER TABLE {TABLE} DROP COLUMN id, ADD PRIMARY KEY (message_id)")

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor != "mysql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
        else:
            key = "ADD COLUMN id bigint NOT NULL AUTO_INCREMENT FIRST, ADD PRIMARY KEY (id)"
            schema_editor.execute(f"ALTER TABLE {TABLE} DROP PRIMARY KEY, {key}")


CHANGES = [
    migrations.RemoveField(model_name="orderevent", name="id"),
    migrations.AlterField(
        model_name="orderevent",
        name="message_id",
        field=models.UUIDField(primary_key=True, serialize=False),
    ),
]


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0002_mail'),
    ]

    operations = [OneStatement(CHANGES, CHANGES)]
