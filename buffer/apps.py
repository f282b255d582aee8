"""App configuration of buffer."""

from django.apps import AppConfig


class BufferConfig(AppConfig):
    name = "buffer"
    verbose_name = "Buffer and stock"
    default_auto_field = "django.db.models.BigAutoField"
