"""Log-ins at the identity provider."""

from django.db import migrations, models

from config.fields import IdentifierField


class Migration(migrations.Migration):
    dependencies = [("outbox", "0012_incident")]

    operations = [
        migrations.CreateModel(
            "SignIn",
            [
                ("key", IdentifierField(max_length=43, primary_key=True, serialize=False)),
                ("person", models.IntegerField(help_text="The account's primary key.")),
                ("sealed_tokens", models.TextField(help_text="Encrypted: the provider's tokens.")),
                ("checked_at", models.DateTimeField(help_text="When the provider was asked that said yes last.")),
                ("leased_until", models.DateTimeField(help_text="Until then nobody else asks.")),
            ],
            {
                "default_permissions": (),
                "indexes": [models.Index(fields=["checked_at"], name="signin_checked")],
            },
        )
    ]
