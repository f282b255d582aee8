"""Each provider's own JSON, and signatures that need a certificate or a public key."""

import base64
import json
import threading
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from notifications.webhooks import signatures
from notifications.webhooks.fields import Malformed
from notifications.webhooks.providers import PROVIDERS
from notifications.webhooks.signatures import Forged, StaleSignature, Unavailable

MESSAGE = uuid.uuid4()
META = [{"name": "x-metadata", "value": json.dumps({"message_id": str(MESSAGE)})}]
NOW = datetime.now(UTC)
CERTIFICATE = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-{}.pem"
CONFIRM = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t"
TOPIC = "arn:aws:sns:eu-west-1:1:mails"


def read(esp, body, **headers):
    return PROVIDERS[esp].read(json.dumps(body).encode(), headers)


def ses(kind, part=None, **mail):
    message = {
        "eventType": kind,
        "mail": {"messageId": "ses-1", "destination": ["ada@example.com"], "headers": META, **mail},
    }
    if part is not None:
        message[kind[0].lower() + kind[1:]] = part
    return {"Type": "Notification", "MessageId": "n-1", "Message": json.dumps(message)}


def test_what_is_not_our_id_is_none():
    for value in ('{"message_id": "7"}', "nonsense", "[]", "5", '{"message_id": {"a": 1}}'):
        headers = [{"name": "X-Metadata", "value": value}]
        [event] = read("resend", {"type": "email.sent", "data": {"headers": headers}}, **{"svix-id": "1"})
        assert event.message_id is None


def test_sendgrid_repeats_itself_under_another_id_and_is_recognised():
    same = {"event": "delivered", "email": "a@b.cd", "timestamp": 5, "sg_message_id": "s.filter"}
    one, two = read("sendgrid", [{**same, "sg_event_id": "1"}, {**same, "sg_event_id": "2"}])
    assert one.dedup_id == two.dedup_id
    assert one.provider_message_id == "s"
    assert one.raw != two.raw


def test_amazon_tells_of_several_recipients_at_once():
    people = [{"emailAddress": "a@b.cd"}, {"emailAddress": "e@f.gh"}, {"emailAddress": "a@b.cd"}]
    events = read("amazon_ses", ses("Bounce", {"bounceType": "Permanent", "bouncedRecipients": people}))
    assert [event.recipient for event in events] == ["a@b.cd", "e@f.gh"]
    assert len({event.dedup_id for event in events}) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["event", "id", "type", "data", "email", "RecordType", "Type", "Message", "mail", "event-data", "signature", "to",
         "bounce", "timestamp", "Metadata", "headers", "user-variables", "DeliveredAt", "occurred_at", "x"]) | st.text(), inner),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("esp", PROVIDERS)
@settings(deadline=None)
@given(JSON)
def test_whatever_they_send_is_read_or_refused(esp, body):
    try:
        PROVIDERS[esp].read(json.dumps(body).encode(), {"svix-id": "1"})
    except Malformed as error:
        assert "\n" not in str(error)


# -- SendGrid ----------------------------------------------------------------------------------------------
def sendgrid_pair():
    private = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = private.public_key().public_bytes(serialization.Encoding.DER, form)
    return private, base64.b64encode(public).decode()


def test_sendgrids_signature_covers_time_and_body():
    private, public = sendgrid_pair()
    _, other = sendgrid_pair()
    stamp, body = str(int(NOW.timestamp())), b'[{"event": "delivered"}]'
    signature = private.sign(stamp.encode() + body, ec.ECDSA(hashes.SHA256()))
    headers = {
        "x-twilio-email-event-webhook-timestamp": stamp,
        "x-twilio-email-event-webhook-signature": base64.b64encode(signature).decode(),
    }
    signatures.sendgrid([other, public], headers, body, NOW)
    for secrets, text, given_ in [([other], body, headers), ([public], body + b" ", headers), ([public], body, {})]:
        with pytest.raises(Forged):
            signatures.sendgrid(secrets, given_, text, NOW)
    with pytest.raises(StaleSignature):
        signatures.sendgrid([public], headers, body, NOW + timedelta(seconds=301))
    with pytest.raises(Unavailable, match="EMAIL_WEBHOOK_SECRETS"):
        signatures.sendgrid(["nonsense"], headers, body, NOW)


# -- Amazon SNS --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def amazon():
    """A key and its certificate."""
    key = rsa.generate_private_key(65537, 2048)
    return key, pem_of(key)


def pem_of(key, issuer="Amazon", start=NOW - timedelta(hours=1), end=NOW + timedelta(days=1)):
    def name(text):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    made = x509.CertificateBuilder().subject_name(name("sns.amazonaws.com")).issuer_name(name(issuer))
    made = made.public_key(key.public_key()).serial_number(1).not_valid_before(start).not_valid_after(end)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def fetched(amazon, monkeypatch):
    """What was fetched; the certificate is the answer."""
    urls = []
    monkeypatch.setattr(signatures, "certificates", signatures.Certificates())
    monkeypatch.setattr(signatures, "fetch", lambda url: urls.append(url) or amazon[1])
    return urls


def envelope(key, **changes):
    body = {
        "Type": "Notification", "MessageId": "n-1", "TopicArn": TOPIC, "Message": "{}", "SignatureVersion": "2",
        "Timestamp": NOW.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "SigningCertURL": CERTIFICATE.format("0" * 32), **changes,
    }  # fmt: skip
    text = "".join(
        f"{name}\n{body[name]}\n" for name in signatures.SIGNED.get(body["Type"], []) if body.get(name) is not None
    )
    algorithm = hashes.SHA1() if body["SignatureVersion"] == "1" else hashes.SHA256()  # noqa: S303 (theirs)
    body["Signature"] = base64.b64encode(key.sign(text.encode(), padding.PKCS1v15(), algorithm)).decode()
    return body


def check(body, at=NOW):
    signatures.verify_sns([TOPIC], {}, json.dumps(body).encode(), at)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_genuine_notification_passes_and_its_certificate_is_fetched_once(amazon, fetched, version):
    check(envelope(amazon[0], SignatureVersion=version))
    check(envelope(amazon[0], Subject="with a subject"))
    assert len(fetched) == 1


def test_a_subscription_to_our_topic_is_confirmed(amazon, fetched):
    check(envelope(amazon[0], Type="SubscriptionConfirmation", SubscribeURL=CONFIRM, Token="t"))
    assert fetched[-1] == CONFIRM
    stranger = rsa.generate_private_key(65537, 2048)
    with pytest.raises(Forged):
        check(envelope(stranger, Type="SubscriptionConfirmation", SubscribeURL=CONFIRM, Token="t"))
    assert fetched.count(CONFIRM) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"TopicArn": "arn:aws:sns:eu-west-1:2:theirs"}, {"Type": "Nonsense"}, {"SignatureVersion": "3"},
        *({"SigningCertURL": CERTIFICATE.format("0" * 32).replace(*change)} for change in [
            ("https", "http"), ("https://", "file:///"), (".com", ".com.evil.example"), (".com", ".com@evil.example"),
            ("//sns", "//evil.example/sns"), ("sns.eu-west-1.amazonaws.com", "127.0.0.1"), (".com", ".com:8443"),
            ("sns.eu-west-1", "s3"), ("eu-west-1", "s3-us-west-2"), ("sns.", "snsx"), (".amazonaws", "xamazonaws"),
            (".com", "xcom"), ("/S", "/x/S"), ("0" * 32, "0" * 31), ("0" * 32, "0" * 33), ("0" * 32, "g" * 32),
            (".pem", "xpem"), (".pem", ".pem?x"), (".pem", ".pem\n"),
        ]),
        *({"Type": "SubscriptionConfirmation", "Token": "t", "SubscribeURL": url} for url in [
            CONFIRM.replace("sns.eu-west-1.amazonaws.com", "evil.example"), CONFIRM.replace("Confirm", "Un"),
            CONFIRM + "\n", CONFIRM + "@evil.example", CERTIFICATE.format("0" * 32), None,
        ]),
    ],
)  # fmt: skip
def test_what_amazon_did_not_sign_fetches_nothing_from_elsewhere(amazon, fetched, changes):
    with pytest.raises(Forged):
        check(envelope(amazon[0], **changes))
    assert all(url.startswith("https://sns.eu-west-1.amazonaws.com/S") for url in fetched)


def test_a_changed_message_is_forged_and_an_old_one_stale(amazon, fetched):
    genuine = envelope(amazon[0])
    for changes in ({"Message": "{ }"}, {"MessageId": "n-2"}, {"Signature": ""}, {"Signature": "%%"}):
        with pytest.raises(Forged):
            check({**genuine, **changes})
    with pytest.raises(StaleSignature):
        check(genuine, NOW + timedelta(days=2))


def test_a_certificate_that_cannot_be_read_is_our_problem_not_theirs(amazon, monkeypatch):
    for answer in (b"nonsense", b"<xml>" + amazon[1] + b"</xml>"):
        monkeypatch.setattr(signatures, "certificates", signatures.Certificates())
        monkeypatch.setattr(signatures, "fetch", lambda url, answer=answer: answer)
        with pytest.raises(Unavailable, match="certificate"):
            check(envelope(amazon[0]))


@pytest.mark.parametrize(
    "made",
    [
        {"issuer": "sns.amazonaws.com"},
        {"end": NOW - timedelta(minutes=1)},
        {"start": NOW + timedelta(minutes=1)},
        {"key": ec.generate_private_key(ec.SECP256R1())},
    ],
    ids=lambda made: next(iter(made)),
)
def test_a_certificate_that_amazon_does_not_use_today_proves_nothing(amazon, monkeypatch, made):
    monkeypatch.setattr(signatures, "certificates", signatures.Certificates())
    monkeypatch.setattr(signatures, "fetch", lambda url: pem_of(**{"key": amazon[0], **made}))
    with pytest.raises(Forged, match="SigningCertURL"):
        check(envelope(amazon[0]))


def test_unsigned_requests_do_not_make_us_call_out(amazon, fetched):
    stranger = rsa.generate_private_key(65537, 2048)
    for number in range(20):
        with pytest.raises((Forged, Unavailable)):
            check(envelope(stranger, SigningCertURL=CERTIFICATE.format(f"{number:032x}")))
    assert len(fetched) == 1
    with pytest.raises(StaleSignature):
        check(envelope(stranger, SigningCertURL=CERTIFICATE.format("f" * 32)), NOW + timedelta(days=2))
    assert len(fetched) == 1
    later = NOW + signatures.SNS_PAUSE
    check(envelope(amazon[0], SigningCertURL=CERTIFICATE.format("e" * 32)), later)
    assert len(fetched) == 2


def test_an_answer_is_read_up_to_a_limit_and_waited_for_a_short_time(monkeypatch):
    waited = []
    opener = SimpleNamespace(open=lambda url, timeout: waited.append(timeout) or BytesIO(b"x" * 50_000))
    monkeypatch.setattr(urllib.request, "build_opener", lambda *_: opener)
    assert (len(signatures.fetch(CONFIRM)), waited) == (signatures.LARGEST_CERTIFICATE, [signatures.SNS_SECONDS])


def test_a_redirect_is_not_followed_and_no_more_is_read_than_a_certificate_has():
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(302 if self.path == "/" else 200)
            self.send_header("Location", "/certificate.pem")
            self.end_headers()
            self.wfile.write(b"x" * 2 * signatures.LARGEST_CERTIFICATE)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises(OSError, match="302"):
            signatures.fetch(f"http://127.0.0.1:{server.server_port}/")
        assert asked == ["/"]
        assert len(signatures.fetch(f"http://127.0.0.1:{server.server_port}/large")) == signatures.LARGEST_CERTIFICATE
        server.shutdown()
