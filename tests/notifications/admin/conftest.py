"""The person who looks at every page."""

from tests.config.admin.conftest import boss

__all__ = ["boss"]
