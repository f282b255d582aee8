"""Orders, their events, API tokens."""


import config.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

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
                ('revoked_at', models.DateTimeField(editable=False, null=True)),
                ('revoked_by', models.CharField(default='', editable=False, max_length=150)),
            ],
            options={
                'verbose_name': 'API token',
                'permissions': [('revoke_apitoken', 'Can revoke API tokens')],
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
            ],
            options={
                'indexes': [models.Index(fields=['user_email', 'id'], name='order_email'), models.Index(fields=['status', 'id'], name='order_status')],
                'constraints': [models.CheckConstraint(condition=models.Q(('refunded_amount__gte', 0), ('refunded_amount__lte', models.F('total_amount'))), name='order_refunds_within_total')],
            },
        ),
        migrations.CreateModel(
            name='OrderEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField(help_text="The order's version after it.")),
                ('event_type', config.fields.IdentifierField(choices=[('order.paid', 'paid'), ('order.cancelled', 'cancelled'), ('order.part_refunded', 'partly refunded'), ('order.refunded', 'refunded')], max_length=30)),
                ('amount', models.BigIntegerField(default=0, help_text='Of a refund, in minor units.')),
                ('message_id', models.UUIDField()),
                ('created_at', models.DateTimeField()),
                ('order', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='events', to='notifications.order')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('order', 'number'), name='orderevent_number')],
            },
        ),
    ]
