"""An order's event is named by its message."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0002_mail'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='orderevent',
            name='id',
        ),
        migrations.AlterField(
            model_name='orderevent',
            name='message_id',
            field=models.UUIDField(primary_key=True, serialize=False),
        ),
    ]
