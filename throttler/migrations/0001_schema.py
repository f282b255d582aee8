"""Every table of throttler: its columns, indexes and partitions."""

import config.fields
from django.db import migrations, models
from config.partitions.operations import PartitionTable


class Migration(migrations.Migration):

    initial = True

    replaces = [
        ("throttler", "0001_initial"),
        ("throttler", "0002_overflowmessage"),
        ("throttler", "0003_lanepartition"),
        ("throttler", "0004_overflow_search"),
        ("throttler", "0005_outputdivision"),
    ]

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='LaneOwner',
            fields=[
                ('name', config.fields.IdentifierField(help_text='--instance, or a random name.', max_length=100, primary_key=True, serialize=False)),
                ('partitions', models.JSONField(default=list)),
                ('demand', models.FloatField(default=0, help_text='The weights of its lanes that are due.')),
                ('transactions', models.BooleanField(default=True, help_text='False: at-least-once (KAFKA_TRANSACTIONS=off).')),
                ('process', models.CharField(default='', help_text='Which process has the name now.', max_length=36)),
                ('starts', models.IntegerField(default=1, help_text='How many processes have had the name.')),
                ('updated_at', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='LanePartition',
            fields=[
                ('number', models.IntegerField(primary_key=True, serialize=False)),
                ('topic_id', models.CharField(default='', max_length=36)),
                ('epoch', models.BigIntegerField(help_text='Of the owner that wrote this: an older one changes nothing.')),
                ('process', models.CharField(default='', help_text='Which of those that have had this epoch.', max_length=36)),
                ('position', models.BigIntegerField(help_text='The offset that is committed.')),
                ('decided', models.BigIntegerField(help_text='The first offset that nothing was decided about.')),
                ('read', models.BigIntegerField(help_text='The first offset that has not come since the owner began.')),
                ('updated_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='OutputDivision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.BigIntegerField(help_text='One more with each change: who has read another one changes nothing.')),
                ('entries', models.JSONField(default=dict, help_text='By owner: its part in millionths, its partitions, its demand.')),
            ],
        ),
        migrations.CreateModel(
            name='Customer',
            fields=[
                ('customer_id', config.fields.IdentifierField(max_length=200, primary_key=True, serialize=False)),
                ('rates', models.CharField(help_text='Windows, all of which hold: 20/s;10000/day. 0/s is hold.', max_length=200)),
                ('burst', models.IntegerField(blank=True, help_text="Of the shortest window; empty: one second's worth, at least 1.", null=True)),
                ('ttl_seconds', models.IntegerField(blank=True, help_text='Empty: THROTTLER_TTL_SECONDS.', null=True)),
                ('weight', models.IntegerField(default=1, help_text='Share of THROTTLER_OUTPUT_RATE, beside others that wait.')),
                ('held', models.BooleanField(default=False, help_text='Everything is buffered, nothing leaves.')),
                ('purge_before', models.DateTimeField(help_text='Buffered messages older than this are given up.', null=True)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'permissions': [('rate_customer', 'Can change rate and lifetime of customers'), ('hold_customer', 'Can hold and resume customers'), ('purge_customer', 'Can purge what a customer has buffered')],
                'indexes': [models.Index(fields=['updated_at'], name='customer_changed')],
            },
        ),
        migrations.CreateModel(
            name='CustomerPeriod',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('customer_id', config.fields.IdentifierField(max_length=200)),
                ('partition', models.IntegerField()),
                ('start', models.DateTimeField()),
                ('live', models.BigIntegerField(default=0)),
                ('buffered', models.BigIntegerField(default=0)),
                ('drained', models.BigIntegerField(default=0)),
                ('expired', models.BigIntegerField(default=0)),
                ('backlog', models.BigIntegerField(default=0, help_text='At the end of the five minutes.')),
            ],
            options={
                'indexes': [models.Index(fields=['start'], name='customerperiod_age')],
                'constraints': [models.UniqueConstraint(fields=('customer_id', 'partition', 'start'), name='customerperiod_start')],
            },
        ),
        migrations.CreateModel(
            name='Lane',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('customer_id', config.fields.IdentifierField(max_length=200)),
                ('partition', models.IntegerField()),
                ('topic_id', models.CharField(default='', max_length=36)),
                ('epoch', models.BigIntegerField(help_text='Of the owner that wrote this: an older one changes nothing.')),
                ('backlog', models.BigIntegerField()),
                ('waits', models.BigIntegerField(default=0, help_text='Messages of the backlog that the store does not have yet.')),
                ('first', models.BigIntegerField(help_text='The offset with which this backlog began.')),
                ('drained', models.BigIntegerField(help_text='Everything up to this offset has left or expired.')),
                ('seen', models.BigIntegerField(help_text='The last offset decided.')),
                ('day', models.DateField(help_text='Of the oldest row that waits.', null=True)),
                ('oldest_at', models.DateTimeField(help_text='When the oldest message that waits was created.', null=True)),
                ('next_due_at', models.DateTimeField(help_text='When the next one may leave; empty: held.', null=True)),
                ('limiter', models.JSONField(default=dict, help_text='tat and quotas, as in the changelog.')),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['customer_id'], name='lane_of_customer'), models.Index(fields=['-backlog', 'id'], name='lane_largest'), models.Index(fields=['day'], name='lane_day'), models.Index(fields=['oldest_at'], name='lane_oldest')],
                'constraints': [models.UniqueConstraint(fields=('partition', 'customer_id'), name='lane_customer')],
            },
        ),
        migrations.CreateModel(
            name='OverflowMessage',
            fields=[
                ('pk', models.CompositePrimaryKey('partition', 'customer_id', 'topic_id', 'offset', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('partition', models.IntegerField()),
                ('customer_id', config.fields.IdentifierField(max_length=200)),
                ('topic_id', config.fields.IdentifierField(max_length=36)),
                ('offset', models.BigIntegerField()),
                ('day', models.DateField()),
                ('notification_id', config.fields.IdentifierField(help_text='As the message says.', max_length=200)),
                ('created_at', models.DateTimeField(help_text="The earlier of the message's own time and the record's.")),
                ('expires_at', models.DateTimeField(help_text="Empty: its customer's TTL when it is judged.", null=True)),
                ('headers', models.BinaryField(help_text='JSON of [[name, base64 value], …], or nothing.')),
                ('payload', models.BinaryField(help_text="The record's value, byte for byte.")),
                ('notification_hash', models.SmallIntegerField(help_text='One of 4,096, of the notification id: people search by it.', null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['notification_hash', 'offset'], name='overflow_notification')],
            },
        ),
        PartitionTable("throttler.partitioned.OVERFLOW"),
    ]
