"""The app of the lowest layer, which registers the system checks, and the one of the admin."""

from typing import Any

from django.apps import AppConfig, apps
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    default = True  # Django takes none of several, and those that are imported here count
    name = "config"
    verbose_name = "Spillway"

    def ready(self) -> None:
        from config import checks  # noqa: F401 (importing registers the checks)
        from config.admin.levers import ROLES
        from config.openid import require_fitting
        from config.partitions import ensure_after_migrate
        from config.telemetry.tracing import start_tracing

        require_fitting(ROLES)
        post_migrate.connect(ensure_after_migrate)
        start_tracing()


class SpillwayAdminConfig(SimpleAdminConfig):
    """`django.contrib.admin` with our site; users and groups are "Access", the rows of django-axes "Logins".

    Its pages are imported with the URLs: a worker, which serves none, would have a seventh of its memory for them.
    """

    default = False
    default_site = "config.admin.site.SpillwayAdminSite"

    def ready(self) -> None:
        apps.get_app_config("auth").verbose_name = "Access"
        apps.get_app_config("axes").verbose_name = "Logins"
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_pages, checks.Tags.admin)


def check_pages(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    """Django's own check of every admin page, after all of them are there."""
    from config.admin.site import register_pages

    register_pages()
    return check_admin_app(app_configs, **options)
