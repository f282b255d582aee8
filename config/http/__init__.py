"""Asks the servers of others over HTTP: follows no redirect, reads no more than it is told, knows authorities by a file."""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPException
from urllib.error import HTTPError, URLError

from config.telemetry.redaction import one_line


class Unanswered(OSError):
    """There is no answer. `is_distrust`: because of the other side's certificate."""

    def __init__(self, text: str, *, is_distrust: bool) -> None:
        super().__init__(text)
        self.is_distrust = is_distrust


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead anywhere, and a secret would go along."""

    def redirect_request(self, *_: object) -> None:
        return None


def ask(request: urllib.request.Request | str, *, timeout: float, most: int, cafile: str = "") -> bytes:
    """The first `most` bytes of an answer of 2xx. Raises HTTPError for every other answer, Unanswered where there is none.

    `cafile` is read anew each time, so it may be renewed (another OSError where it cannot be read); empty: the
    authorities that the system knows.
    """
    context = ssl.create_default_context(cafile=cafile or None)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirect)
    try:
        with opener.open(request, timeout=timeout) as answer:
            content: bytes = answer.read(most)
    except HTTPError:
        raise
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error
        raise Unanswered(one_line(cause), is_distrust=isinstance(cause, ssl.SSLCertVerificationError)) from None
    return content
