"""A digest of what each batch publishes, and the number of batches that retention has deleted: for `verify`."""

from django.db import migrations, models, transaction


def count_swept(apps, schema_editor):
    """As many as were counted when they were sent and are not there any more."""
    alias = schema_editor.connection.alias
    batches = apps.get_model("buffer", "Batch").objects.using(alias).filter(status="sent")
    counters = apps.get_model("outbox", "FlowCounter").objects.using(alias)
    with transaction.atomic(using=alias):
        # Locked first: a flusher that runs meanwhile counts and marks its batches in one transaction.
        counted = counters.filter(name="batches_sent").select_for_update().values_list("flow", "value")
        for stream, total in list(counted):
            swept = total - batches.filter(stream=stream).count()
            counters.update_or_create(flow=stream, scope="flush", name="batches_swept", defaults={"value": swept})


class Migration(migrations.Migration):
    dependencies = [("buffer", "0007_rows_of_one_size"), ("outbox", "0005_resolve_permission")]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="content_hash",
            field=models.CharField(
                db_default="",
                default="",
                help_text="Of payload and headers, taken when they were frozen.",
                max_length=32,
            ),
        ),
        migrations.RunPython(count_swept, migrations.RunPython.noop),
    ]
