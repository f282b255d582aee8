"""MySQL finds burial keys and groups by their whole index: with another collation it read all keys of a consumer group."""

from django.db import migrations

import config.fields


class Migration(migrations.Migration):

    dependencies = [("outbox", "0014_letters_by_correlation")]

    operations = [
        migrations.AlterField(
            model_name="burialkey", name="topic_id", field=config.fields.IdentifierField(max_length=36)
        ),
        migrations.AlterField(
            model_name="failuregroup",
            name="fingerprint",
            field=config.fields.IdentifierField(max_length=32, unique=True),
        ),
    ]
