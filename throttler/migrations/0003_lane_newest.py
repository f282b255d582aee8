"""The day of a lane's newest row, up to which readers of a store that cannot search by days look."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("throttler", "0002_unread_columns"),
    ]

    operations = [
        migrations.AddField(
            model_name="lane",
            name="newest",
            field=models.DateField(
                help_text="The day of the newest row that waits. Empty also in what an earlier release wrote.", null=True
            ),
        ),
    ]
