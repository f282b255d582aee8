"""Actions from before get the subject that their words name, so that its page finds them; in chunks, by key."""

from django.db import migrations

CHUNK = 1000
NAMED = {
    "Channel ": "outbox.channelstate",
    "Customer ": "throttler.customer",
    "Stock ": "buffer.inventorystock",
}


def subject_of(action):
    """(type, key) of a row of the trail; the words are all that older ones have."""
    if letter := action.detail.get("letter"):
        return "outbox.deadletter", str(letter)
    if replay := action.detail.get("replay"):
        return "outbox.topicreplay", str(replay)
    for prefix, kind in NAMED.items():
        if action.subject.startswith(prefix):
            return kind, action.subject.removeprefix(prefix)[:150]
    return "", ""


def name_subjects(apps, schema_editor):
    actions = apps.get_model("outbox", "OperatorAction").objects.using(schema_editor.connection.alias).order_by("pk")
    last = 0
    while found := list(actions.filter(pk__gt=last, subject_type="")[:CHUNK]):
        last = found[-1].pk
        for action in found:
            action.subject_type, action.subject_id = subject_of(action)
        actions.bulk_update([action for action in found if action.subject_type], ["subject_type", "subject_id"])


class Migration(migrations.Migration):
    dependencies = [("outbox", "0011_b_rights")]

    operations = [migrations.RunPython(name_subjects, migrations.RunPython.noop)]
