"""A project with an extension: Django's command, with a template of ours."""

from typing import Any

from django.conf import settings
from django.core.management.commands.startproject import Command as StartProject

from config.processes.commands import VisibleCommand


class Command(VisibleCommand, StartProject):
    help = (
        "Make a project with an extension of one stream, its test, a Makefile with `make run` and `make test`, a "
        "Dockerfile and a compose file, in DIRECTORY (a new one that is called NAME)."
    )

    rewrite_template_suffixes = (("-tpl", ""),)

    def handle(self, **options: Any) -> None:  # type: ignore[override]
        options["template"] = options["template"] or str(settings.CODE / "spillway_ext" / "project")
        options["extensions"] = ["py", "md", "toml", "yaml"]
        options["files"] = ["Makefile-tpl", "Dockerfile-tpl", ".env-tpl"]
        super().handle(**options)
