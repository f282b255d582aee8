"""Letters that were requeued before anybody looked after their effect are closed, and say so."""

from django.db import migrations

CHUNK = 2000
NOBODY = "Requeued before effects were proven: nobody looked what became of it."


def close(apps, schema_editor):
    """A chunk a statement, by key: no transaction grows long, and one that was interrupted goes on where it was."""
    using = schema_editor.connection.alias
    letters = apps.get_model("outbox", "DeadLetter").objects.using(using)
    requeued = letters.filter(status="requeued").order_by("pk")
    while ids := list(requeued.values_list("pk", flat=True)[:CHUNK]):
        letters.filter(pk__in=ids, status="requeued").update(status="resolved", evidence=NOBODY)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("outbox", "0008_a_proof_of_effect")]

    operations = [migrations.RunPython(close, migrations.RunPython.noop, elidable=True)]
