"""Deliveries, suppressed addresses, webhook events."""

import config.fields
from django.db import migrations, models

from config.partitions.operations import PartitionTable


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('message_id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('order_id', config.fields.IdentifierField(blank=True, default='', max_length=200)),
                ('recipient', models.CharField(max_length=254)),
                ('provider', config.fields.IdentifierField(max_length=50)),
                ('provider_message_id', config.fields.IdentifierField(blank=True, default='', max_length=200)),
                ('status', config.fields.IdentifierField(choices=[('accepted', 'Accepted'), ('deferred', 'Deferred'), ('delivered', 'Delivered'), ('bounced', 'Bounced'), ('rejected', 'Rejected'), ('complained', 'Complained')], default='accepted', max_length=15)),
                ('status_at', models.DateTimeField(help_text="When it came to be, by the provider's clock.")),
                ('detail', models.CharField(blank=True, default='', max_length=300)),
                ('accepted_at', models.DateTimeField()),
                ('delivered_at', models.DateTimeField(null=True)),
                ('bounced_at', models.DateTimeField(null=True)),
                ('complained_at', models.DateTimeField(null=True)),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'permissions': [('suppress_recipient', 'Can suppress recipients')],
                'indexes': [models.Index(fields=['provider', 'provider_message_id'], name='delivery_provider_id'), models.Index(fields=['status', '-message_id'], name='delivery_status')],
            },
        ),
        PartitionTable("notifications.partitioned.DELIVERIES"),
        migrations.CreateModel(
            name='Suppression',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('address_hash', config.fields.IdentifierField(editable=False, max_length=32, unique=True)),
                ('address', models.CharField(max_length=254)),
                ('reason', models.CharField(choices=[('hard_bounce', 'bounced for good'), ('complaint', 'complained'), ('manual', 'entered by hand')], max_length=15)),
                ('note', models.CharField(blank=True, default='', max_length=300)),
                ('since', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'suppressed address',
                'verbose_name_plural': 'suppressed addresses',
                'permissions': [('lift_suppression', 'Can lift suppressions')],
                'indexes': [models.Index(fields=['-since'], name='suppression_recent')],
            },
        ),
        migrations.CreateModel(
            name='WebhookEvent',
            fields=[
                ('id', models.UUIDField(default=config.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('provider', config.fields.IdentifierField(max_length=50)),
                ('dedup_id', config.fields.IdentifierField(help_text="The provider's id of the event, or a hash of what makes it one.", max_length=200)),
                ('kind', config.fields.IdentifierField(choices=[('accepted', 'accepted'), ('deferred', 'deferred'), ('delivered', 'delivered'), ('bounced', 'bounced'), ('rejected', 'rejected'), ('complained', 'complained'), ('other', 'something else')], max_length=15)),
                ('body', models.TextField(help_text="Exactly as it came; of a list, this event's part.")),
                ('headers', models.JSONField(default=dict, help_text='What was signed with it; never a password.')),
                ('message_id', models.UUIDField(null=True)),
                ('provider_message_id', config.fields.IdentifierField(blank=True, default='', max_length=200)),
                ('recipient', models.CharField(blank=True, default='', max_length=254)),
                ('detail', models.CharField(blank=True, default='', max_length=300)),
                ('occurred_at', models.DateTimeField()),
                ('received_at', models.DateTimeField()),
                ('verdict', config.fields.IdentifierField(choices=[('new', 'not applied yet'), ('applied', 'Applied'), ('no_news', 'said nothing new'), ('ignored', 'of no interest'), ('parked', 'waits for its message'), ('unknown_message', 'message never seen'), ('other_recipient', 'about another recipient')], default='new', max_length=15)),
                ('applied_at', models.DateTimeField(null=True)),
                ('token', models.BigIntegerField(default=0, editable=False)),
            ],
            options={
                'indexes': [models.Index(fields=['applied_at', 'id'], name='webhookevent_open'), models.Index(fields=['received_at'], name='webhookevent_age'), models.Index(fields=['message_id'], name='webhookevent_message'), models.Index(fields=['verdict', '-id'], name='webhookevent_verdict')],
                'constraints': [models.UniqueConstraint(fields=('provider', 'dedup_id'), name='webhookevent_once')],
            },
        ),
    ]
