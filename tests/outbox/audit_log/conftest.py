"""Pages without TLS."""

from tests.config.admin.conftest import _plain_http

__all__ = ["_plain_http"]
