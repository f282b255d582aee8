"""The actor becomes a name and a number; an action gets its subject, what was before and after; seals come.

The table of actions is small: each step is fast, on MariaDB and MySQL it copies that one table.
"""

from django.db import migrations, models

import config.fields

ACTION = "operatoraction"


class Migration(migrations.Migration):
    dependencies = [("outbox", "0010_replay_batches")]

    operations = [
        # First without the constraint, then as what it is: a number that no deletion of an account changes.
        migrations.RenameField(ACTION, "actor", "actor_number"),
        migrations.AlterField(
            ACTION,
            "actor_number",
            models.IntegerField(null=True, help_text="The account's primary key; null for a command."),
        ),
        migrations.CreateModel(
            name="ActionSeal",
            fields=[
                (
                    "number",
                    models.BigIntegerField(help_text="1, 2, 3, … without a gap.", primary_key=True, serialize=False),
                ),
                ("action", models.BigIntegerField(help_text="The primary key of the action.", unique=True)),
                ("row_hash", models.CharField(help_text="SHA-256 of the action's columns.", max_length=64)),
                (
                    "acted_at",
                    models.DateTimeField(
                        help_text="When the action was recorded: retention may delete it some time later."
                    ),
                ),
                ("hash", models.CharField(help_text="SHA-256 of all of these and of the hash before.", max_length=64)),
                (
                    "floor",
                    models.BigIntegerField(
                        help_text="No action up to this key was awaited any more; not part of the hash."
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ActionSubject",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("subject_type", config.fields.IdentifierField(max_length=50)),
                ("subject_id", config.fields.IdentifierField(max_length=150)),
                ("action", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="OfferedRight",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("role", models.CharField(max_length=50)),
                ("right", models.CharField(help_text="As `outbox.requeue_deadletter`.", max_length=150)),
            ],
        ),
        migrations.AddField(
            model_name="operatoraction",
            name="after",
            field=models.JSONField(help_text="Its state after the deed.", null=True),
        ),
        migrations.AddField(
            model_name="operatoraction",
            name="before",
            field=models.JSONField(help_text="The state of the subject before the deed.", null=True),
        ),
        migrations.AddField(
            model_name="operatoraction",
            name="subject_id",
            field=config.fields.IdentifierField(
                default="", help_text="Its primary key; empty for several rows.", max_length=150
            ),
        ),
        migrations.AddField(
            model_name="operatoraction",
            name="subject_type",
            field=config.fields.IdentifierField(
                default="", help_text="The model, as `outbox.deadletter`.", max_length=50
            ),
        ),
        migrations.AddIndex(
            model_name="operatoraction",
            index=models.Index(fields=["actor_number", "-created_at"], name="operatoraction_who"),
        ),
        migrations.AddIndex(
            model_name="operatoraction",
            index=models.Index(fields=["actor_name", "-created_at"], name="operatoraction_name"),
        ),
        migrations.AddIndex(
            model_name="operatoraction",
            index=models.Index(fields=["subject_type", "-created_at"], name="operatoraction_what"),
        ),
        migrations.AddIndex(
            model_name="operatoraction",
            index=models.Index(fields=["subject_id", "subject_type", "-created_at"], name="operatoraction_subject"),
        ),
        migrations.AddConstraint(
            model_name="actionsubject",
            constraint=models.UniqueConstraint(
                fields=("subject_id", "subject_type", "action"), name="actionsubject_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="offeredright",
            constraint=models.UniqueConstraint(fields=("role", "right"), name="offeredright_key"),
        ),
    ]
