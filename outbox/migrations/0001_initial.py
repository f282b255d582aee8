"""The tables of this app."""

import config.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from config.partitions.operations import PartitionTable


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='JobLease',
            fields=[
                ('job', config.fields.IdentifierField(max_length=100, primary_key=True, serialize=False)),
                ('token', models.UUIDField(null=True)),
                ('until', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='BurialKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('group', config.fields.IdentifierField(max_length=100)),
                ('topic_id', models.CharField(max_length=36)),
                ('topic', config.fields.IdentifierField(max_length=249)),
                ('partition', models.IntegerField()),
                ('offset', models.BigIntegerField()),
                ('step', config.fields.IdentifierField(max_length=50)),
                ('revision', models.IntegerField(default=0)),
                ('payload_hash', models.CharField(max_length=32)),
                ('token', models.BigIntegerField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('group', 'topic_id', 'topic', 'partition', 'offset', 'step', 'revision'), name='burialkey_record')],
            },
        ),
        migrations.CreateModel(
            name='FailureGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fingerprint', models.CharField(max_length=32, unique=True)),
                ('source', config.fields.IdentifierField(max_length=100)),
                ('step', models.CharField(max_length=50)),
                ('reason', models.CharField(max_length=100)),
                ('title', models.CharField(max_length=300)),
                ('open_count', models.BigIntegerField(default=0)),
                ('total_count', models.BigIntegerField(default=0)),
                ('first_seen', models.DateTimeField()),
                ('last_seen', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['-last_seen'], name='failuregroup_recent')],
            },
        ),
        migrations.CreateModel(
            name='FlowCounter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('flow', config.fields.IdentifierField(max_length=100)),
                ('scope', config.fields.IdentifierField(help_text='Source partition, or empty.', max_length=50)),
                ('name', config.fields.IdentifierField(max_length=50)),
                ('value', models.BigIntegerField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('flow', 'scope', 'name'), name='flowcounter_key')],
            },
        ),
        migrations.CreateModel(
            name='FlowMinute',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('flow', config.fields.IdentifierField(max_length=100)),
                ('name', config.fields.IdentifierField(max_length=50)),
                ('minute', models.IntegerField(help_text='Minutes since 1970.')),
                ('value', models.BigIntegerField(default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['minute'], name='flowminute_minute')],
                'constraints': [models.UniqueConstraint(fields=('flow', 'name', 'minute'), name='flowminute_key')],
            },
        ),
        migrations.CreateModel(
            name='Watermark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('group', config.fields.IdentifierField(max_length=100)),
                ('topic', config.fields.IdentifierField(max_length=249)),
                ('partition', models.IntegerField()),
                ('topic_id', models.CharField(default='', help_text='Tells a recreated topic from its namesake.', max_length=36)),
                ('next_offset', models.BigIntegerField()),
                ('end_offset', models.BigIntegerField(default=0)),
                ('caught_up_at', models.DateTimeField(help_text='The last time everything in the log had been read.', null=True)),
                ('alarm', models.CharField(default='', help_text='Why this partition is stopped; empty: it runs.', max_length=500)),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('group', 'topic', 'partition'), name='watermark_position')],
            },
        ),
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
                ('id', models.UUIDField(default=config.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('source', config.fields.IdentifierField(help_text='The stream or flow it belongs to.', max_length=100)),
                ('step', models.CharField(max_length=50)),
                ('reason', models.CharField(max_length=100)),
                ('error', models.TextField(blank=True)),
                ('error_class', models.CharField(blank=True, max_length=200)),
                ('traceback', models.TextField(blank=True)),
                ('status', models.CharField(choices=[('open', 'Open'), ('requeued', 'Requeued'), ('resolved', 'Resolved'), ('discarded', 'Discarded')], default='open', max_length=10)),
                ('consumer_group', config.fields.IdentifierField(blank=True, max_length=100)),
                ('topic', config.fields.IdentifierField(blank=True, max_length=249)),
                ('topic_id', models.CharField(blank=True, max_length=36)),
                ('partition', models.IntegerField(null=True)),
                ('offset', models.BigIntegerField(null=True)),
                ('timestamp', models.BigIntegerField(help_text='Of the record, in milliseconds.', null=True)),
                ('revision', models.IntegerField(default=0, help_text='0 as received; each replay that fails again adds one.')),
                ('key', models.BinaryField(null=True)),
                ('payload', models.BinaryField(help_text='Exactly the bytes received; null for a tombstone.', null=True)),
                ('headers', models.JSONField(default=list)),
                ('business_key', config.fields.IdentifierField(blank=True, help_text='The order, batch or customer it is about.', max_length=200)),
                ('correlation_id', models.CharField(blank=True, max_length=100)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('note', models.TextField(blank=True, help_text='What the last lever did.')),
                ('group', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='letters', to='outbox.failuregroup')),
            ],
            options={
                'permissions': [('view_payload', 'Can see payloads'), ('requeue_deadletter', 'Can requeue dead letters'), ('discard_deadletter', 'Can discard dead letters')],
                'indexes': [models.Index(fields=['status', '-id'], name='deadletter_status'), models.Index(fields=['group', 'status', '-id'], name='deadletter_group'), models.Index(fields=['business_key'], name='deadletter_business_key'), models.Index(fields=['topic', 'partition', 'offset'], name='deadletter_position')],
            },
        ),
        migrations.CreateModel(
            name='OperatorAction',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('actor_name', models.CharField(help_text='Kept when the user is gone; commands say so.', max_length=150)),
                ('verb', models.CharField(max_length=50)),
                ('subject', models.CharField(max_length=300)),
                ('url', models.CharField(blank=True, max_length=300)),
                ('reason', models.TextField()),
                ('result', models.CharField(max_length=200)),
                ('rows', models.IntegerField(default=1)),
                ('detail', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField()),
                ('actor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(fields=['-created_at'], name='operatoraction_recent')],
            },
        ),
        PartitionTable("outbox.partitioned.DEAD_LETTERS"),
    ]
