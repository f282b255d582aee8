"""What people search an order by: the number in its mails, and its address without capitals.

The database computes both for the orders that exist. PostgreSQL, MariaDB and MySQL rewrite the table for it.
"""

import config.fields
from django.db import migrations, models
from django.db.models.functions import Cast, Lower, Right, Upper


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0004_api_token_expires'),
    ]

    operations = [
        migrations.AddField(
            model_name='order',
            name='number_in_mail',
            field=models.GeneratedField(db_persist=True, expression=Upper(Right(Cast('id', models.CharField(max_length=36)), 10)), help_text='As mails call it: the last digits of the id.', output_field=config.fields.IdentifierField(max_length=10)),
        ),
        migrations.AddField(
            model_name='order',
            name='address',
            field=models.GeneratedField(db_persist=True, expression=Lower('user_email'), help_text='The address without capitals.', output_field=config.fields.IdentifierField(max_length=254)),
        ),
        migrations.AddIndex(
            model_name='order',
            index=models.Index(fields=['number_in_mail'], name='order_number'),
        ),
        migrations.AddIndex(
            model_name='order',
            index=models.Index(fields=['address', 'id'], name='order_address'),
        ),
        migrations.RemoveIndex(
            model_name='order',
            name='order_email',
        ),
    ]
