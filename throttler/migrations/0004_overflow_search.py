from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('throttler', '0003_lanepartition'),
    ]

    operations = [
        # Empty for rows that are there already, and for those of workers that still run the last release.
        migrations.AddField(
            model_name='overflowmessage',
            name='notification_hash',
            field=models.SmallIntegerField(help_text='One of 4,096, of the notification id: people search by it.', null=True),
        ),
        migrations.AddIndex(
            model_name='overflowmessage',
            index=models.Index(fields=['notification_hash', 'offset'], name='overflow_notification'),
        ),
    ]
