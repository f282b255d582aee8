"""The tracking ledger, partitioned by the hash of the reference: it must deduplicate for ever."""

import config.fields
import django.db.models.deletion
from django.db import migrations, models

from config.partitions.operations import HashPartitionTable


class Migration(migrations.Migration):

    dependencies = [
        ('buffer', '0003_mariadb_ids'),
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
        HashPartitionTable(
            "InventoryTracking", "reference_id", 16, key=["reference_id", "reference_type", "stock_id"]
        ),
    ]
