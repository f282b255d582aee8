"""Every table of buffer: its columns, indexes and partitions."""

import config.fields
import django.db.models.deletion
import uuid
from django.db import migrations, models
from config.partitions.operations import HashPartitionTable, IndexByFlag, NumberBySequence, PartitionTable


class Migration(migrations.Migration):

    initial = True

    replaces = [
        ("buffer", "0001_initial"),
        ("buffer", "0002_claim_index"),
        ("buffer", "0003_mariadb_ids"),
        ("buffer", "0004_ledger"),
        ("buffer", "0005_mariadb_ledger_ids"),
        ("buffer", "0006_claim_index_by_flag"),
        ("buffer", "0007_rows_of_one_size"),
        ("buffer", "0008_batch_content_hash"),
        ("buffer", "0009_made_up_supplements"),
    ]

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='InventoryItem',
            fields=[
                ('active', models.BooleanField(default=True, help_text='False once it was deleted at its source.')),
                ('topic_id', models.CharField(blank=True, default='', max_length=36)),
                ('source_partition', models.IntegerField(default=-1)),
                ('source_offset', models.BigIntegerField(default=-1)),
                ('source_timestamp', models.BigIntegerField(default=-2, help_text='Of the record, in milliseconds.')),
                ('token', models.BigIntegerField(default=0, editable=False, help_text='The transaction that last wrote it.')),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('id', config.fields.IdentifierField(max_length=200, primary_key=True, serialize=False)),
                ('merchant_id', config.fields.IdentifierField(blank=True, default='', max_length=200)),
            ],
            options={
                'abstract': False,
            },
        ),
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
                ('content_hash', models.CharField(db_default='', default='', help_text='Of payload and headers, taken when they were frozen.', max_length=32)),
                ('months', models.JSONField(default=list, help_text='Partition keys of its orders.')),
                ('event_ids', models.JSONField(default=list)),
                ('attempts', models.IntegerField(default=0)),
                ('error', models.TextField(blank=True)),
                ('output_partition', models.IntegerField(null=True)),
                ('output_offset', models.BigIntegerField(null=True)),
                ('claimed_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(null=True)),
                ('made_up_at', models.DateTimeField(help_text='When a later supplement of the order took in what this discarded one would have said.', null=True)),
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
                ('batch_id', models.UUIDField(db_default=models.Value('00000000000000000000000000000000', output_field=models.CharField()), default=uuid.UUID('00000000-0000-0000-0000-000000000000'), help_text='Nil as long as it waits.')),
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
                
                'constraints': [models.UniqueConstraint(fields=('partition_key', 'stream', 'order_id', 'location_id'), name='bufferedevent_order')],
            },
        ),
        migrations.CreateModel(
            name='InventoryLocation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('active', models.BooleanField(default=True, help_text='False once it was deleted at its source.')),
                ('topic_id', models.CharField(blank=True, default='', max_length=36)),
                ('source_partition', models.IntegerField(default=-1)),
                ('source_offset', models.BigIntegerField(default=-1)),
                ('source_timestamp', models.BigIntegerField(default=-2, help_text='Of the record, in milliseconds.')),
                ('token', models.BigIntegerField(default=0, editable=False, help_text='The transaction that last wrote it.')),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('merchant_id', config.fields.IdentifierField(blank=True, default='', help_text='Empty for a location that was imported.', max_length=200)),
                ('name', config.fields.IdentifierField(max_length=200)),
                ('is_default', models.BooleanField(default=False)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('merchant_id', 'name'), name='inventorylocation_name')],
            },
        ),
        migrations.CreateModel(
            name='InventoryTracking',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference_type', config.fields.IdentifierField(max_length=30)),
                ('reference_id', config.fields.IdentifierField(max_length=200)),
                ('stock_id', config.fields.IdentifierField(max_length=200)),
                ('delta', models.BigIntegerField(help_text='Negative takes out.')),
                ('topic', config.fields.IdentifierField(blank=True, default='', help_text='Empty if not from Kafka.', max_length=249)),
                ('topic_id', models.CharField(blank=True, default='', max_length=36)),
                ('source_partition', models.IntegerField(blank=True, null=True)),
                ('source_offset', models.BigIntegerField(blank=True, null=True)),
                ('source_timestamp', models.BigIntegerField(blank=True, help_text='Of the record, in milliseconds.', null=True)),
                ('payload_hash', models.BigIntegerField(default=0, help_text='Of the whole record it came from.')),
                ('token', models.BigIntegerField(default=0, help_text='The transaction that wrote this row.')),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'verbose_name_plural': 'inventory tracking',
                'indexes': [models.Index(fields=['stock_id', 'id'], name='inventorytracking_stock')],
                'constraints': [models.UniqueConstraint(fields=('reference_id', 'reference_type', 'stock_id'), name='inventorytracking_key')],
            },
        ),
        migrations.CreateModel(
            name='InventoryStock',
            fields=[
                ('id', config.fields.IdentifierField(help_text='The stockId of the messages.', max_length=200, primary_key=True, serialize=False)),
                ('quantity', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('item', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='buffer.inventoryitem')),
                ('location', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='buffer.inventorylocation')),
            ],
            options={
                'permissions': [('adjust_inventorystock', 'Can correct a quantity after a stocktake')],
                'constraints': [models.CheckConstraint(condition=models.Q(('quantity__gte', -4611686018427387904), ('quantity__lte', 4611686018427387904)), name='inventorystock_range')],
            },
        ),
        PartitionTable("buffer.partitioned.EVENTS"),
        HashPartitionTable("InventoryTracking", "reference_id", 16, key=["reference_id", "reference_type", "stock_id"]),
        # An operation of its own is carried out at once; those of CreateModel come at the end of the migration.
        migrations.AddIndex(
            model_name="bufferedevent",
            index=models.Index(
                condition=models.Q(("status", "pending")), fields=["stream", "location_id", "id"], name="bufferedevent_open"
            ),
        ),
        IndexByFlag("BufferedEvent", "bufferedevent_open", flag="is_pending"),
        # After a deadlock inside INSERT … SELECT MariaDB hands out values of AUTO_INCREMENT again in a partitioned table.
        NumberBySequence("BufferedEvent"),
        NumberBySequence("InventoryTracking"),
    ]
