"""Every table of notifications: its columns, indexes and partitions."""

import config.fields
import config.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.functions.text
from django.db import migrations, models
from config.partitions.operations import PartitionTable


class Migration(migrations.Migration):

    initial = True

    replaces = [
        ("notifications", "0001_initial"),
        ("notifications", "0002_mail"),
        ("notifications", "0003_order_event_key"),
        ("notifications", "0004_api_token_expires"),
        ("notifications", "0005_order_number_and_address"),
    ]

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='The program or team that uses it.', max_length=100)),
                ('prefix', config.fields.IdentifierField(editable=False, max_length=20, unique=True)),
                ('digest', models.CharField(editable=False, help_text='SHA-256 of the whole token.', max_length=64)),
                ('customer_id', config.fields.IdentifierField(blank=True, default='', help_text='It then sends for this throttler customer and sees no orders. Empty: it is for orders.', max_length=200, verbose_name='customer')),
                ('rate', models.FloatField(blank=True, help_text='Requests a second. Empty: API_RATE_PER_SECOND; 0: unlimited.', null=True, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(100000.0)])),
                ('full_at', models.BigIntegerField(default=0, editable=False, help_text='When its bucket is full again, in microseconds since 1970.')),
                ('created_by', models.CharField(editable=False, max_length=150)),
                ('created_at', models.DateTimeField(editable=False)),
                ('last_used_at', models.DateTimeField(editable=False, help_text='To the minute.', null=True)),
                ('expires_at', models.DateTimeField(blank=True, help_text='UTC. From then on it is refused. Empty: it never expires.', null=True, verbose_name='expires')),
                ('revoked_at', models.DateTimeField(editable=False, null=True)),
                ('revoked_by', models.CharField(default='', editable=False, max_length=150)),
            ],
            options={
                'verbose_name': 'API token',
                'permissions': [('revoke_apitoken', 'Can revoke API tokens')],
            },
        ),
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
        migrations.CreateModel(
            name='Order',
            fields=[
                ('id', models.UUIDField(default=config.fields.uuid7, editable=False, primary_key=True, serialize=False)),
                ('user_email', config.fields.IdentifierField(max_length=254)),
                ('total_amount', models.BigIntegerField(help_text='In minor units: cents.')),
                ('currency', models.CharField(help_text='ISO 4217.', max_length=3)),
                ('refunded_amount', models.BigIntegerField(default=0)),
                ('status', config.fields.IdentifierField(choices=[('pending', 'Pending'), ('paid', 'Paid'), ('cancelled', 'Cancelled'), ('part_refunded', 'partly refunded'), ('refunded', 'Refunded')], default='pending', max_length=15)),
                ('version', models.IntegerField(default=0, help_text='Events so far; the number of the last one.')),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('number_in_mail', models.GeneratedField(db_persist=True, expression=django.db.models.functions.text.Upper(django.db.models.functions.text.Right(django.db.models.functions.comparison.Cast('id', models.CharField(max_length=36)), 10)), help_text='As mails call it: the last digits of the id.', output_field=config.fields.IdentifierField(max_length=10))),
                ('address', models.GeneratedField(db_persist=True, expression=django.db.models.functions.text.Lower('user_email'), help_text='The address without capitals.', output_field=config.fields.IdentifierField(max_length=254))),
            ],
            options={
                'indexes': [models.Index(fields=['address', 'id'], name='order_address'), models.Index(fields=['number_in_mail'], name='order_number'), models.Index(fields=['status', 'id'], name='order_status')],
                'constraints': [models.CheckConstraint(condition=models.Q(('refunded_amount__gte', 0), ('refunded_amount__lte', models.F('total_amount'))), name='order_refunds_within_total')],
            },
        ),
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
        migrations.CreateModel(
            name='OrderEvent',
            fields=[
                ('message_id', models.UUIDField(primary_key=True, serialize=False)),
                ('number', models.IntegerField(help_text="The order's version after it.")),
                ('event_type', config.fields.IdentifierField(choices=[('order.paid', 'paid'), ('order.cancelled', 'cancelled'), ('order.part_refunded', 'partly refunded'), ('order.refunded', 'refunded')], max_length=30)),
                ('amount', models.BigIntegerField(default=0, help_text='Of a refund, in minor units.')),
                ('created_at', models.DateTimeField()),
                ('order', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='events', to='notifications.order')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('order', 'number'), name='orderevent_number')],
            },
        ),
        PartitionTable("notifications.partitioned.DELIVERIES"),
    ]
