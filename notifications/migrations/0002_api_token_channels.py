"""The channels for which a token promises messages."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0001_schema'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='channels',
            field=models.CharField(blank=True, db_default='', default='', help_text='Names of HANDLERS with commas. It then promises messages for these channels and sees no orders.', max_length=500),
        ),
    ]
