"""The transactional outbox: messages, keys, attempts, channels."""

import config.fields
from django.db import migrations, models

from config.partitions.operations import PartitionTable


class Migration(migrations.Migration):

    dependencies = [
        ('outbox', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ChannelState',
            fields=[
                ('name', config.fields.IdentifierField(max_length=50, primary_key=True, serialize=False)),
                ('paused', models.BooleanField(default=False)),
                ('paused_by', models.CharField(blank=True, default='', max_length=150)),
                ('pause_reason', models.TextField(blank=True, default='')),
                ('paused_at', models.DateTimeField(null=True)),
                ('breaker', models.CharField(choices=[('closed', 'Closed'), ('open', 'Open')], default='closed', max_length=10)),
                ('failures', models.IntegerField(default=0, help_text='Outages in a row, over all workers.')),
                ('opened_at', models.DateTimeField(null=True)),
                ('probe_at', models.DateTimeField(help_text='When one message may try whether it is over.', null=True)),
                ('last_error', models.TextField(blank=True, default='')),
                ('wait_until', models.DateTimeField(help_text='Told to wait by the other side (429).', null=True)),
                ('tokens', models.FloatField(default=0.0)),
                ('tokens_at', models.DateTimeField(null=True)),
                ('cdc_seen_at', models.DateTimeField(help_text='Creation of the newest message the CDC path has brought.', null=True)),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'channel',
                'permissions': [('pause_channel', 'Can pause and resume channels')],
            },
        ),
        migrations.CreateModel(
            name='DeliveryAttempt',
            fields=[
                ('id', models.UUIDField(default=config.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('message_id', models.UUIDField()),
                ('channel', config.fields.IdentifierField(max_length=50)),
                ('number', models.IntegerField()),
                ('lease_token', models.UUIDField()),
                ('path', models.CharField(help_text='Who claimed it: poll, cdc or manual.', max_length=10)),
                ('worker', models.CharField(max_length=100)),
                ('started_at', models.DateTimeField()),
                ('finished_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, default='', max_length=20)),
                ('error', models.TextField(blank=True, default='')),
                ('receipt', models.CharField(blank=True, default='', max_length=300)),
            ],
            options={
                'indexes': [models.Index(fields=['message_id', 'id'], name='deliveryattempt_message')],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', config.fields.IdentifierField(max_length=200)),
                ('key', config.fields.IdentifierField(max_length=200)),
                ('payload_hash', models.CharField(max_length=32)),
                ('message_id', models.UUIDField(null=True)),
                ('status_code', models.IntegerField(help_text='Null while the first request is in progress.', null=True)),
                ('answer', models.TextField(blank=True, default='')),
                ('token', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['created_at'], name='idempotencykey_age')],
                'constraints': [models.UniqueConstraint(fields=('scope', 'key'), name='idempotencykey_scope')],
            },
        ),
        migrations.CreateModel(
            name='OutboxMessage',
            fields=[
                ('lease_token', models.UUIDField(blank=True, editable=False, null=True)),
                ('lease_until', models.DateTimeField(blank=True, editable=False, null=True)),
                ('id', models.UUIDField(default=config.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('channel', config.fields.IdentifierField(help_text='The handler that delivers it: a key of HANDLERS.', max_length=50)),
                ('event_type', config.fields.IdentifierField(max_length=100)),
                ('aggregate', config.fields.IdentifierField(help_text='What it is about; messages of one aggregate leave in order.', max_length=200)),
                ('payload', models.TextField(help_text='JSON, byte for byte what every attempt sends.')),
                ('correlation_id', models.CharField(blank=True, default='', max_length=100)),
                ('traceparent', models.CharField(blank=True, default='', max_length=55)),
                ('state', config.fields.IdentifierField(choices=[('pending', 'Pending'), ('processing', 'Processing'), ('sent', 'Sent'), ('uncertain', 'Uncertain'), ('dead_lettered', 'dead letter'), ('cancelled', 'Cancelled'), ('expired', 'Expired')], default='pending', max_length=15)),
                ('attempts', models.IntegerField(default=0, help_text='Counted at claim; outages are given back.')),
                ('available_at', models.DateTimeField(help_text='Not before; for uncertain ones, when that is decided.')),
                ('expires_at', models.DateTimeField(help_text='After this nobody wants it any more.')),
                ('times_uncertain', models.IntegerField(default=0, help_text='How often it may have been sent without our knowing: the mark stays.')),
                ('times_revived', models.IntegerField(default=0, help_text='How often it came back from a final state; it may then follow its successors.')),
                ('error_class', models.CharField(blank=True, default='', max_length=20)),
                ('error', models.TextField(blank=True, default='')),
                ('receipt', models.CharField(blank=True, default='', help_text='What the other side called it when it accepted.', max_length=300)),
                ('created_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(null=True)),
            ],
            options={
                'permissions': [('cancel_outboxmessage', 'Can cancel, retry and settle messages')],
                'indexes': [models.Index(condition=models.Q(('state', 'pending')), fields=['channel', 'available_at', 'id'], name='outboxmessage_due'), models.Index(condition=models.Q(('state__in', ['pending', 'processing', 'uncertain'])), fields=['aggregate', 'id'], name='outboxmessage_unfinished'), models.Index(condition=models.Q(('state__in', ['processing', 'uncertain', 'dead_lettered', 'cancelled', 'expired'])), fields=['state', 'lease_until'], name='outboxmessage_taken')],
            },
        ),
        PartitionTable("outbox.partitioned.MESSAGES"),
        PartitionTable("outbox.partitioned.ATTEMPTS"),
    ]
