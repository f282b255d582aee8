"""Who may do everything, and pages without TLS."""

from tests.config.admin.conftest import _plain_http, boss

__all__ = ["_plain_http", "boss"]
