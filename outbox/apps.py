"""App configuration of outbox."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.db.models.signals import post_delete, post_migrate


class OutboxConfig(AppConfig):
    name = "outbox"
    verbose_name = "Outbox and dead letters"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from outbox.accounts.models import forget_person
        from outbox.accounts.roles import make_roles
        from outbox.accounts.zones import remember
        from outbox.channels import handlers  # noqa: F401 (importing registers its check)
        from outbox.intake import flow  # noqa: F401 (as above)
        from outbox.sign_in.passwords import record_break_glass

        user_logged_in.connect(remember, dispatch_uid="outbox.remember_zone")
        user_logged_in.connect(record_break_glass, dispatch_uid="outbox.record_break_glass")
        post_delete.connect(forget_person, sender="auth.User", dispatch_uid="outbox.forget_person")
        post_migrate.connect(make_roles, dispatch_uid="outbox.make_roles")
