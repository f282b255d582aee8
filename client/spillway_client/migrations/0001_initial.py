# The table of promises.

from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Promise',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('channel', models.CharField(max_length=50)),
                ('event_type', models.CharField(max_length=100)),
                ('aggregate', models.CharField(max_length=200)),
                ('idempotency_key', models.CharField(max_length=200)),
                ('key_digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('payload', models.TextField()),
                ('expires_at', models.CharField(blank=True, max_length=40)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('sent', 'Sent'), ('refused', 'Refused'), ('captured', 'Captured')], default='pending', max_length=10)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('lease_token', models.CharField(blank=True, editable=False, max_length=32)),
                ('lease_until', models.FloatField(default=0, editable=False)),
            ],
            options={
                'indexes': [models.Index(fields=['state', 'id'], name='spillway_promise_state'), models.Index(fields=['created_at'], name='spillway_promise_created')],
            },
        ),
    ]
