"""The people and rows that every admin page is looked at with."""

from tests.config.admin.conftest import _long_runway, _plain_http, boss, reader, rows

__all__ = ["_long_runway", "_plain_http", "boss", "reader", "rows"]
