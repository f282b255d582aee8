"""How a client gets in: certificates, passwords, tokens; and where it does not, which setting keeps it out."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from cryptography import x509
from django.conf import settings
from kafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    RetriableError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)

from config.kafka.tokens import TokenUnavailable, tokens
from config.telemetry.redaction import one_line

TLS = ("SSL", "SASL_SSL")
SASL = ("SASL_PLAINTEXT", "SASL_SSL")
WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PRIVATE_KEY = b"PRIVATE KEY-----"
EXPIRED, OTHER_NAME, OTHER_ADDRESS = 10, 62, 64  # of OpenSSL


class NotLetIn(RetriableError):
    """Somebody answers, or need not be asked: the text begins with the setting that keeps us out.

    Worth another try: what is to be sent is not to blame.
    """

    def __str__(self) -> str:
        return str(self.args[0])


def access_options() -> dict[str, object]:
    """Options of every client: how to connect, and how to prove who we are. Raises NotLetIn for settings that do not fit.

    The client reads the files anew for each connection, so they may be renewed while it runs.
    """
    for misfit in misfits():
        raise NotLetIn(misfit)
    options = {
        "sasl_mechanism": settings.KAFKA_SASL_MECHANISM,
        "sasl_plain_username": settings.KAFKA_SASL_USERNAME,
        "sasl_plain_password": settings.KAFKA_SASL_PASSWORD,
        "ssl_cafile": settings.KAFKA_SSL_CAFILE,
        "ssl_certfile": settings.KAFKA_SSL_CERTFILE,
        "ssl_keyfile": settings.KAFKA_SSL_KEYFILE,
    }
    return {
        "security_protocol": settings.KAFKA_SECURITY_PROTOCOL,
        "ssl_password": settings.KAFKA_SSL_KEY_PASSWORD,  # also where it is empty: without any, OpenSSL asks the terminal
        "sasl_oauth_token_provider": tokens() if settings.KAFKA_SASL_MECHANISM == "OAUTHBEARER" else None,
        **{name: value for name, value in options.items() if value},
    }


def misfits() -> Iterator[str]:
    """Settings that cannot be meant together; each text begins with the one to change."""
    protocol, mechanism = settings.KAFKA_SECURITY_PROTOCOL, settings.KAFKA_SASL_MECHANISM
    if protocol in SASL and not mechanism:
        yield f"KAFKA_SASL_MECHANISM: KAFKA_SECURITY_PROTOCOL={protocol} needs one"
    if mechanism and protocol not in SASL:
        yield f"KAFKA_SECURITY_PROTOCOL: {protocol} has no log-in; KAFKA_SASL_MECHANISM={mechanism} needs SASL_SSL"
    if mechanism == "AWS_MSK_IAM" and protocol != "SASL_SSL":
        yield "KAFKA_SECURITY_PROTOCOL: KAFKA_SASL_MECHANISM=AWS_MSK_IAM needs SASL_SSL"
    if mechanism == "AWS_MSK_IAM" and not find_spec("botocore"):
        yield "KAFKA_SASL_MECHANISM: AWS_MSK_IAM needs the package botocore (pip install 'spillway[aws]')"
    needed = {"OAUTHBEARER": ["KAFKA_OAUTH_TOKEN_URL", "KAFKA_OAUTH_CLIENT_ID", "KAFKA_OAUTH_CLIENT_SECRET"]}
    needed |= {name: ["KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"] for name in WITH_PASSWORD}
    for name in needed.get(mechanism, []):
        if not getattr(settings, name):
            yield f"{name}: is empty; KAFKA_SASL_MECHANISM={mechanism} needs it"
    yield from _misfits_of_files(protocol)


def _misfits_of_files(protocol: str) -> Iterator[str]:
    for name in ("KAFKA_SSL_CAFILE", "KAFKA_SSL_CERTFILE"):
        if getattr(settings, name) and protocol not in TLS:
            yield f"KAFKA_SECURITY_PROTOCOL: {protocol} uses no certificates; {name} needs SSL or SASL_SSL"
    for name in ("KAFKA_SSL_KEYFILE", "KAFKA_SSL_KEY_PASSWORD"):
        if getattr(settings, name) and not settings.KAFKA_SSL_CERTFILE:
            yield f"KAFKA_SSL_CERTFILE: is empty; {name} needs it"
    if settings.KAFKA_SSL_CERTFILE and not settings.KAFKA_SSL_KEYFILE:
        content, _fault = _content("KAFKA_SSL_CERTFILE")
        if content and PRIVATE_KEY not in content:
            yield "KAFKA_SSL_KEYFILE: is empty, and the file of KAFKA_SSL_CERTFILE holds no key either"


# -- Which setting keeps us out --------------------------------------------------------------------------------------
def reason(failure: BaseException | None) -> str:
    """Why a connection failed, beginning with the setting to look at; empty where nobody answers."""
    if isinstance(failure, NotLetIn | TokenUnavailable):
        return str(failure)
    if settings.KAFKA_SECURITY_PROTOCOL in TLS and (fault := fault_of_files()):
        return fault
    # Not for a connection that broke: botocore may ask the network, and who calls sends the heartbeats.
    unsigned = any(not isinstance(error, OSError | KafkaConnectionError) for error in _chain(failure))
    if settings.KAFKA_SASL_MECHANISM == "AWS_MSK_IAM" and unsigned and (fault := fault_of_aws()):
        return fault
    for error in _chain(failure):
        if isinstance(error, ssl.SSLError):
            return _reason_of_tls(error)
        if isinstance(error, KafkaError) and (why := _reason_of_sasl(error)):
            return why
    return ""


def is_refused(failure: BaseException) -> bool:
    """Whether the broker has looked at our password or token, and says no."""
    return any(isinstance(error, SaslAuthenticationFailedError) for error in _chain(failure))


def fault_of_files() -> str:
    """What is wrong with the certificates and the key, as far as it can be seen here; no path is repeated."""
    for name in ("KAFKA_SSL_CAFILE", "KAFKA_SSL_CERTFILE", "KAFKA_SSL_KEYFILE"):
        content, fault = _content(name)
        if fault:
            return fault
        if content and name != "KAFKA_SSL_KEYFILE" and (fault := _fault_of_certificates(name, content)):
            return fault
    if not settings.KAFKA_SSL_CERTFILE:
        return ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    names = settings.KAFKA_SSL_CERTFILE, settings.KAFKA_SSL_KEYFILE or None
    try:
        context.load_cert_chain(*names, password=settings.KAFKA_SSL_KEY_PASSWORD)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return "KAFKA_SSL_KEYFILE: is not the key of the certificate in KAFKA_SSL_CERTFILE"
        if b"ENCRYPTED" in Path(names[1] or names[0]).read_bytes():
            return "KAFKA_SSL_KEY_PASSWORD: does not open the key"
        return "KAFKA_SSL_KEYFILE: the file that it names holds no key in PEM"
    return ""


def fault_of_aws() -> str:
    """What botocore lacks to sign a log-in."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session()
    try:
        if not session.get_config_variable("region"):
            return "AWS_DEFAULT_REGION: is empty; KAFKA_SASL_MECHANISM=AWS_MSK_IAM needs it"
        found = session.get_credentials()
    except BotoCoreError as error:
        return f"KAFKA_SASL_MECHANISM=AWS_MSK_IAM: {one_line(error)}"
    return (
        "" if found else "KAFKA_SASL_MECHANISM=AWS_MSK_IAM: botocore finds no credentials (AWS_ACCESS_KEY_ID, a role)"
    )


def _content(name: str) -> tuple[bytes, str]:
    """Of the file that a setting names, and why it cannot be read; both are empty where it names none."""
    path = getattr(settings, name)
    try:
        return (Path(path).read_bytes() if path else b""), ""
    except (OSError, ValueError) as error:  # no path is repeated: somebody may have put the key itself there
        return b"", f"{name}: cannot read the file that it names: {getattr(error, 'strerror', None) or 'no path'}"


def _fault_of_certificates(name: str, content: bytes) -> str:
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:  # what OpenSSL may take, though
        fault = f"{name}: the file that it names holds no certificate in PEM"
        return "" if b"CERTIFICATE-----" in content else fault
    # Of our own chain the first is ours; of authorities one that is valid is enough.
    ends = found[0].not_valid_after_utc if name == "KAFKA_SSL_CERTFILE" else max(c.not_valid_after_utc for c in found)
    if ends <= datetime.now(UTC):
        return f"{name}: the certificate of {found[0].subject.rfc4514_string()} expired on {ends:%Y-%m-%d %H:%M} UTC"
    return ""


def _chain(failure: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was made of: kafka-python keeps a cause in the arguments, or only as the context."""
    while failure is not None:
        yield failure
        inner = next((argument for argument in failure.args if isinstance(argument, BaseException)), None)
        failure = inner or failure.__cause__ or failure.__context__


def _reason_of_tls(error: ssl.SSLError) -> str:
    what = error.reason or one_line(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if error.verify_code == EXPIRED:
            return f"KAFKA_BOOTSTRAP_SERVERS: the broker's certificate has expired ({why})"
        if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
            return f"KAFKA_BOOTSTRAP_SERVERS: the broker's certificate is for another name ({why})"
        return f"KAFKA_SSL_CAFILE: knows no authority of the broker's certificate ({why})"
    if "ALERT" in what:
        if not settings.KAFKA_SSL_CERTFILE:
            return f"KAFKA_SSL_CERTFILE: is empty, and the broker asks for a certificate ({what})"
        return f"KAFKA_SSL_CERTFILE: the broker does not accept the certificate ({what})"
    return f"KAFKA_SECURITY_PROTOCOL={settings.KAFKA_SECURITY_PROTOCOL}: what answers does not speak TLS ({what})"


def _reason_of_sasl(error: KafkaError) -> str:
    protocol, mechanism = settings.KAFKA_SECURITY_PROTOCOL, settings.KAFKA_SASL_MECHANISM
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"KAFKA_SASL_MECHANISM={mechanism}: the broker does not know it at this listener"
    if isinstance(error, IllegalSaslStateError):
        return f"KAFKA_SECURITY_PROTOCOL={protocol}: the broker has no log-in at this listener"
    if isinstance(error, KafkaProtocolError) and protocol not in TLS:
        return f"KAFKA_SECURITY_PROTOCOL={protocol}: what answers does not speak Kafka, or only with TLS"
    if not isinstance(error, SaslAuthenticationFailedError):
        return ""
    if mechanism in WITH_PASSWORD:
        return f"KAFKA_SASL_PASSWORD: the broker does not let {settings.KAFKA_SASL_USERNAME} in ({one_line(error)})"
    if mechanism != "OAUTHBEARER":
        return f"KAFKA_SASL_MECHANISM={mechanism}: the broker refuses the credentials ({one_line(error)})"
    if ended := tokens().ended():
        return f"KAFKA_OAUTH_TOKEN_URL: the provider's token expired on {ended:%Y-%m-%d %H:%M:%S} UTC, the broker refuses it"
    return f"KAFKA_OAUTH_SCOPE: the broker refuses the token ({one_line(error)}): issuer, audience, scope, key or clock"
