"""Failure groups have a state, an owner and words of their own; letters are counted per hour."""

import config.fields
from django.db import migrations, models


def state_what_is_known(apps, schema_editor):
    """Nobody has said anything about these groups: those with open letters are open, the others are resolved."""
    groups = apps.get_model("outbox", "FailureGroup").objects.using(schema_editor.connection.alias)
    groups.filter(open_count__gt=0).update(state="open", state_since=models.F("last_seen"))
    groups.filter(open_count__lte=0).update(state="resolved", state_since=models.F("last_seen"))


class Migration(migrations.Migration):

    dependencies = [
        ('outbox', '0006_letter_excerpt'),
    ]

    operations = [
        migrations.CreateModel(
            name='GroupHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('group_id', models.BigIntegerField()),
                ('hour', models.IntegerField(help_text='Hours since 1970.')),
                ('arrived', models.BigIntegerField(db_default=0, default=0)),
                ('closed', models.BigIntegerField(db_default=0, default=0, help_text='Resolved or discarded.')),
            ],
        ),
        migrations.CreateModel(
            name='GroupQuota',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('source', config.fields.IdentifierField(max_length=100)),
                ('hour', models.IntegerField(help_text='Hours since 1970.')),
                ('made', models.IntegerField(db_default=0, default=0)),
            ],
        ),
        migrations.AlterModelOptions(
            name='failuregroup',
            options={'permissions': [('take_failuregroup', 'Can take groups'), ('manage_failuregroup', 'Can manage groups')]},
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='hint',
            field=models.CharField(db_default='', default='', help_text='What to do about this cause.', max_length=2000),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='hint_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='hint_by',
            field=models.CharField(db_default='', default='', max_length=150),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='ignored_total',
            field=models.BigIntegerField(help_text='Ignored until the total has reached this.', null=True),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='ignored_until',
            field=models.DateTimeField(help_text='Ignored until then at the longest.', null=True),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='note',
            field=models.CharField(db_default='', default='', max_length=2000),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='note_by',
            field=models.CharField(db_default='', default='', max_length=150),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='owner_id',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='owner_name',
            field=models.CharField(db_default='', default='', max_length=150),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='requeued_count',
            field=models.BigIntegerField(db_default=0, default=0, help_text='Taken back, without proof of their effect.'),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='returned_count',
            field=models.BigIntegerField(db_default=0, default=0, help_text='Of the total: letters of a replay that failed again.'),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='state',
            field=models.CharField(choices=[('new', 'New'), ('open', 'Open'), ('acknowledged', 'Acknowledged'), ('resolved', 'Resolved'), ('regressed', 'Regressed'), ('ignored', 'Ignored')], db_default='new', default='new', max_length=12),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='state_since',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='failuregroup',
            name='ticket',
            field=models.CharField(db_default='', default='', help_text='An address, or its number.', max_length=300),
        ),
        migrations.AddIndex(
            model_name='failuregroup',
            index=models.Index(fields=['source', 'state'], name='failuregroup_state'),
        ),
        migrations.AddIndex(
            model_name='grouphour',
            index=models.Index(fields=['hour'], name='grouphour_hour'),
        ),
        migrations.AddConstraint(
            model_name='grouphour',
            constraint=models.UniqueConstraint(fields=('group_id', 'hour'), name='grouphour_key'),
        ),
        migrations.AddConstraint(
            model_name='groupquota',
            constraint=models.UniqueConstraint(fields=('source', 'hour'), name='groupquota_key'),
        ),
        migrations.RunPython(state_what_is_known, migrations.RunPython.noop),
    ]
