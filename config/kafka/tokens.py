"""Access tokens for SASL OAUTHBEARER: asked for with our id and secret, and renewed long before they end."""

from __future__ import annotations

import base64
import functools
import json
import re
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request

from django.conf import settings
from kafka.errors import KafkaConnectionError
from kafka.net.sasl.oauth import AbstractTokenProvider

from config.http import Unanswered, ask
from config.telemetry.logs import log
from config.telemetry.redaction import one_line

MOST_BYTES = 1_000_000  # of an answer
UNTOLD_LIFE = 300.0  # seconds, of a token about which nobody says when it ends
LONGEST_LIFE = 86_400.0  # seconds: what lives longer is renewed twice a day
TRANSIT = 5.0  # seconds, at most, before its end from which on a token is not shown any more
AGAIN = 2.0  # seconds after which a provider that gave none is asked again
MOST_UNUSED = 2
BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750; else it could write into the request of SASL
ERROR_CODE = re.compile(r"[\w.-]{1,60}")  # RFC 6749; the description beside it is not shown: it may repeat anything
# Which setting is wrong where the provider says so.
SETTING_OF_ERROR = {
    "invalid_client": "KAFKA_OAUTH_CLIENT_SECRET",
    "unauthorized_client": "KAFKA_OAUTH_CLIENT_ID",
    "invalid_scope": "KAFKA_OAUTH_SCOPE",
    "invalid_target": "KAFKA_OAUTH_AUDIENCE",
}


class TokenUnavailable(KafkaConnectionError):
    """The provider gives no token; the text begins with the setting that may be wrong. As a connection that breaks."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Token:
    """All but the text are times of `time.monotonic()`."""

    text: str
    given_at: float
    renewed_at: float
    ended_at: float


@dataclass(frozen=True)
class TokenClient:
    """Who asks whom for tokens (OAuth 2.0, client credentials)."""

    url: str
    identity: str
    secret: str
    scope: str
    audience: str
    cafile: str
    timeout: float  # seconds

    def fetch(self) -> Token:
        """A new token. Raises TokenUnavailable."""
        started = time.monotonic()
        answer = self._answer()
        text = answer.get("access_token")
        if not isinstance(text, str) or not BEARER.fullmatch(text):
            raise TokenUnavailable("KAFKA_OAUTH_TOKEN_URL: the answer has no access_token")
        life = min(_life_of(text, answer.get("expires_in")), LONGEST_LIFE)
        if not life > 0:  # nan is not, either
            raise TokenUnavailable("KAFKA_OAUTH_TOKEN_URL: the provider gives a token that has expired")
        return Token(text, started, started + life / 2, started + life - min(TRANSIT, life / 10))

    def _answer(self) -> dict[str, object]:
        asked = {"grant_type": "client_credentials", "scope": self.scope, "audience": self.audience}
        form = urlencode({name: value for name, value in asked.items() if value}).encode()
        login = base64.b64encode(f"{quote(self.identity, '')}:{quote(self.secret, '')}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
        request = Request(self.url, form, headers)  # noqa: S310 (`Env.address` takes http and https alone)
        try:
            answer = json.loads(ask(request, timeout=self.timeout, most=MOST_BYTES, cafile=self.cafile))
        except HTTPError as error:
            raise TokenUnavailable(_refusal(error)) from None
        except Unanswered as error:
            setting = "KAFKA_OAUTH_CAFILE" if error.is_distrust else "KAFKA_OAUTH_TOKEN_URL"
            raise TokenUnavailable(f"{setting}: the provider cannot be asked for a token: {error}") from None
        except OSError as error:
            raise TokenUnavailable(f"KAFKA_OAUTH_CAFILE: the file that it names: {one_line(error)}") from None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise TokenUnavailable("KAFKA_OAUTH_TOKEN_URL: the answer is no object of JSON")
        return answer


class Tokens(AbstractTokenProvider):
    """What kafka-python asks for a token whenever a connection logs in, or renews its log-in; any thread may ask.

    It asks on the thread that sends heartbeats, too. So a token is renewed at half of its life by a thread of its own,
    and whoever asks waits for the provider only where there is no token that is still good.
    """

    def __init__(self, client: TokenClient, extensions: dict[str, str]) -> None:
        self.client = client
        self._extensions = extensions
        self._token: Token | None = None
        self._failed: tuple[float, TokenUnavailable] | None = None
        self._asking = threading.Lock()
        self._timer: threading.Timer | None = None
        self._timing = threading.Lock()
        self._unused = 0  # tokens that nobody asked for, one after the other

    def token(self) -> str:
        """A token that has not ended. Raises TokenUnavailable."""
        self._unused = 0
        token = self._good()
        if token is None:
            with self._asking:
                token = self._good() or self._renew()
        with self._timing:
            if self._timer is None or not self._timer.is_alive():  # also in a process that was forked
                self._renew_at(token.renewed_at)
        return token.text

    def refused(self) -> None:
        """The broker does not take the token: whoever asks next has a new one, unless it is new itself."""
        if self._token and time.monotonic() >= self._token.given_at + AGAIN:
            self._token = None

    def extensions(self) -> dict[str, str]:
        """What is told beside the token: some clouds ask for the name of the cluster."""
        return self._extensions

    def ended(self) -> datetime | None:
        """When the last token ended, by its own word and the clock of this machine; None where it has not."""
        end = end_of(self._token.text) if self._token else None
        return end if end and end <= datetime.now(UTC) else None

    def _good(self) -> Token | None:
        return self._token if self._token and time.monotonic() < self._token.ended_at else None

    def _renew(self) -> Token:
        """Ask the provider, unless it has just said no."""
        if self._failed and time.monotonic() < self._failed[0] + AGAIN:
            raise self._failed[1]
        try:
            self._token, self._failed = self.client.fetch(), None
        except TokenUnavailable as error:
            self._failed = time.monotonic(), error
            raise
        return self._token

    def _renew_at(self, moment: float) -> None:
        self._timer = threading.Timer(max(0.0, moment - time.monotonic()), self._renew_early)
        self._timer.daemon = True
        self._timer.start()

    def _renew_early(self) -> None:
        """On a thread of its own, as long as tokens are asked for; whoever asks later begins anew."""
        self._unused += 1
        try:
            with self._asking:
                moment = self._renew().renewed_at if self._unused <= MOST_UNUSED else None
        except TokenUnavailable as error:
            good = self._good() is not None
            log.warning("kafka_token_not_renewed", error=str(error), still_good=good)
            moment = time.monotonic() + AGAIN + 0.1 if good else None
            self._unused -= 1
        with self._timing:
            self._timer = None
            if moment is not None:
                self._renew_at(moment)


def tokens() -> Tokens:
    """The one provider of this process, as the settings are."""
    client = TokenClient(
        settings.KAFKA_OAUTH_TOKEN_URL,
        settings.KAFKA_OAUTH_CLIENT_ID,
        settings.KAFKA_OAUTH_CLIENT_SECRET,
        settings.KAFKA_OAUTH_SCOPE,
        settings.KAFKA_OAUTH_AUDIENCE,
        settings.KAFKA_OAUTH_CAFILE,
        settings.KAFKA_OAUTH_TIMEOUT_SECONDS,
    )
    return _tokens(client, tuple(settings.KAFKA_OAUTH_EXTENSIONS.items()))


@functools.lru_cache(maxsize=1)
def _tokens(client: TokenClient, extensions: tuple[tuple[str, str], ...]) -> Tokens:
    return Tokens(client, dict(extensions))


def end_of(token: str) -> datetime | None:
    """When a JWT says that it ends; None of a token that is none. Nothing is believed: the broker checks it."""
    try:
        claims = token.split(".")[1]
        return datetime.fromtimestamp(
            json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"], UTC
        )
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def _life_of(token: str, told: object) -> float:
    """Seconds, as the provider says, who may say it as text; else as the token does."""
    try:
        return float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        end = end_of(token)
        return end.timestamp() - time.time() if end else UNTOLD_LIFE


def _refusal(error: HTTPError) -> str:
    try:
        code = str(json.loads(error.read(MOST_BYTES))["error"])
    except (OSError, HTTPException, KeyError, TypeError, ValueError):
        code = ""
    said = f"HTTP {error.code}, {code}" if ERROR_CODE.fullmatch(code) else f"HTTP {error.code}"
    setting = SETTING_OF_ERROR.get(code, "KAFKA_OAUTH_CLIENT_SECRET" if error.code == 401 else "KAFKA_OAUTH_TOKEN_URL")
    return f"{setting}: the provider gives no token ({said})"
