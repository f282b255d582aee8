from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('outbox', '0005_forget_worker'),
    ]

    operations = [
        migrations.AddField(
            model_name='replaybatch',
            name='edit',
            field=models.JSONField(default=dict, help_text='Of an edit: the change; its values go with the items.'),
        ),
        migrations.AlterField(
            model_name='replaybatch',
            name='verb',
            field=models.CharField(choices=[('requeue', 'Requeue'), ('edit', 'Edit'), ('discard', 'Discard'), ('resolve', 'Resolve'), ('restore', 'Restore')], max_length=10),
        ),
    ]
