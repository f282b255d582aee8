"""The tables of this app."""

import config.fields
from django.db import migrations, models

from config.partitions.operations import PartitionTable


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Batch',
            fields=[
                ('lease_token', models.UUIDField(blank=True, editable=False, null=True)),
                ('lease_until', models.DateTimeField(blank=True, editable=False, null=True)),
                ('batch_id', models.UUIDField(primary_key=True, serialize=False)),
                ('stream', config.fields.IdentifierField(max_length=64)),
                ('location_id', config.fields.IdentifierField(max_length=200)),
                ('sequence', models.BigIntegerField()),
                ('status', config.fields.IdentifierField(choices=[('claimed', 'Claimed'), ('sent', 'Sent'), ('parked', 'dead letter'), ('discarded', 'Discarded')], default='claimed', max_length=10)),
                ('reason', models.CharField(help_text='The rule that made it due.', max_length=20)),
                ('supplement_of', models.UUIDField(blank=True, null=True)),
                ('partition_key', models.IntegerField(help_text='The newest month among its orders: it is kept as long.')),
                ('event_count', models.IntegerField()),
                ('payload', models.TextField(help_text='The message value, byte for byte as published.')),
                ('headers', models.JSONField(default=dict)),
                ('months', models.JSONField(default=list, help_text='Partition keys of its orders.')),
                ('event_ids', models.JSONField(default=list)),
                ('attempts', models.IntegerField(default=0)),
                ('error', models.TextField(blank=True)),
                ('output_partition', models.IntegerField(null=True)),
                ('output_offset', models.BigIntegerField(null=True)),
                ('claimed_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(null=True)),
            ],
            options={
                'verbose_name_plural': 'batches',
                'indexes': [models.Index(fields=['stream', 'location_id', 'sequence'], name='batch_sequence'), models.Index(fields=['status', 'claimed_at'], name='batch_unsent'), models.Index(fields=['-claimed_at'], name='batch_recent'), models.Index(fields=['partition_key'], name='batch_month')],
            },
        ),
        migrations.CreateModel(
            name='Bucket',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('stream', config.fields.IdentifierField(max_length=64)),
                ('location_id', config.fields.IdentifierField(max_length=200)),
                ('open_count', models.IntegerField(default=0)),
                ('sequence', models.BigIntegerField(default=0, help_text='Batches cut so far.')),
                ('first_arrival', models.DateTimeField(help_text='Of the oldest open event.', null=True)),
                ('last_arrival', models.DateTimeField(null=True)),
                ('idle_at', models.DateTimeField(null=True)),
                ('cap_at', models.DateTimeField(null=True)),
                ('due_at', models.DateTimeField(help_text='When to look at it next; null when empty or held.', null=True)),
                ('topic', config.fields.IdentifierField(default='', max_length=249)),
                ('source_partition', models.IntegerField(help_text="Whose silence counts as this bucket's silence.", null=True)),
                ('held', models.BooleanField(default=False, help_text='Nothing is cut from it until it is released.')),
                ('urged', models.CharField(blank=True, default='', help_text='Why it is due at once: leftover, manual, or empty.', max_length=10)),
            ],
            options={
                'permissions': [('flush_bucket', 'Can flush a bucket now'), ('hold_bucket', 'Can hold a bucket')],
                'indexes': [models.Index(fields=['stream', 'due_at'], name='bucket_due')],
                'constraints': [models.UniqueConstraint(fields=('stream', 'location_id'), name='bucket_location')],
            },
        ),
        migrations.CreateModel(
            name='BufferedEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('partition_key', models.IntegerField(help_text='UTC month of the order, yyyymm.')),
                ('stream', config.fields.IdentifierField(max_length=64)),
                ('location_id', config.fields.IdentifierField(max_length=200)),
                ('order_id', config.fields.IdentifierField(max_length=200)),
                ('payload', models.TextField(help_text='The newest accepted message, as received.')),
                ('payload_hash', models.CharField(max_length=32)),
                ('status', config.fields.IdentifierField(choices=[('pending', 'Pending'), ('claimed', 'Claimed'), ('sent', 'Sent'), ('discarded', 'Discarded')], default='pending', max_length=10)),
                ('batch_id', models.UUIDField(blank=True, null=True)),
                ('revision', models.IntegerField(default=0, help_text='How often a newer message replaced the payload.')),
                ('token', models.BigIntegerField(default=0, help_text='The ingest transaction that last changed this row.')),
                ('topic_id', models.CharField(default='', max_length=36)),
                ('source_partition', models.IntegerField()),
                ('source_offset', models.BigIntegerField()),
                ('source_timestamp', models.BigIntegerField(help_text='Of the record, in milliseconds.')),
                ('seen_partition', models.IntegerField(null=True)),
                ('seen_offset', models.BigIntegerField(null=True)),
                ('seen_timestamp', models.BigIntegerField(null=True)),
                ('seen_topic_id', models.CharField(default='', max_length=36)),
                ('seen_hash', models.CharField(default='', max_length=32)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'permissions': [('withdraw_bufferedevent', 'Can withdraw an order before it is claimed')],
                'indexes': [models.Index(condition=models.Q(('status', 'pending')), fields=['stream', 'location_id', 'id'], name='bufferedevent_open')],
                'constraints': [models.UniqueConstraint(fields=('partition_key', 'stream', 'order_id', 'location_id'), name='bufferedevent_order')],
            },
        ),
        PartitionTable("buffer.partitioned.EVENTS"),
    ]
