"""Django settings: everything an operator may change comes from the environment (docs/settings.md)."""

from __future__ import annotations

import re
from pathlib import Path

from celery.schedules import crontab

from config.environment.databases import parse_cassandra_url
from config.environment.env import BadSetting, formats_from_text, grants_from_text
from config.environment.extensions import extend, load
from config.environment.mail import esp_from_text, secrets_from_text, sender_from_text, server_from_url
from config.environment.web import *  # noqa: F403 (Django takes its settings from this module)
from config.environment.web import BASE_DIR, DATABASES, DEMO, env

VERSION = "0.1.0"
RELEASE = env.text("RELEASE")

# -- Logs, metrics, traces ------------------------------------------------------------------------
LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"])
LOG_FORMAT = env.choice("LOG_FORMAT", "json", ["json", "console"])
LOGGING_CONFIG = "config.telemetry.logs.configure"
LOGGING = {"level": LOG_LEVEL, "format": LOG_FORMAT}
METRICS_PORT = env.integer("METRICS_PORT", 0, most=65535)
METRICS_HOST = env.text("METRICS_HOST", "127.0.0.1")
OTEL_EXPORTER_OTLP_ENDPOINT = env.text("OTEL_EXPORTER_OTLP_ENDPOINT")
PROMETHEUS_EXPORT_MIGRATIONS = False

# -- Kafka ----------------------------------------------------------------------------------------
KAFKA_BOOTSTRAP_SERVERS = env.listing("KAFKA_BOOTSTRAP_SERVERS", ["127.0.0.1:9092"])
KAFKA_TOPIC_PREFIX = env.text("KAFKA_TOPIC_PREFIX")
KAFKA_SECURITY_PROTOCOL = env.choice(
    "KAFKA_SECURITY_PROTOCOL", "PLAINTEXT", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
)
KAFKA_SASL_MECHANISM = env.choice(
    "KAFKA_SASL_MECHANISM", "", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"]
)
KAFKA_SASL_USERNAME = env.text("KAFKA_SASL_USERNAME")
KAFKA_SASL_PASSWORD = env.text("KAFKA_SASL_PASSWORD")
KAFKA_SSL_CAFILE = env.text("KAFKA_SSL_CAFILE")
KAFKA_SSL_CERTFILE = env.text("KAFKA_SSL_CERTFILE")
KAFKA_SSL_KEYFILE = env.text("KAFKA_SSL_KEYFILE")
KAFKA_SSL_KEY_PASSWORD = env.text("KAFKA_SSL_KEY_PASSWORD")
KAFKA_OAUTH_TOKEN_URL = env.address("KAFKA_OAUTH_TOKEN_URL")
KAFKA_OAUTH_CLIENT_ID = env.text("KAFKA_OAUTH_CLIENT_ID")
KAFKA_OAUTH_CLIENT_SECRET = env.text("KAFKA_OAUTH_CLIENT_SECRET")
KAFKA_OAUTH_SCOPE = env.text("KAFKA_OAUTH_SCOPE")
KAFKA_OAUTH_AUDIENCE = env.text("KAFKA_OAUTH_AUDIENCE")
KAFKA_OAUTH_EXTENSIONS = env.pairs("KAFKA_OAUTH_EXTENSIONS")
KAFKA_OAUTH_CAFILE = env.text("KAFKA_OAUTH_CAFILE")
KAFKA_OAUTH_TIMEOUT_SECONDS = env.seconds("KAFKA_OAUTH_TIMEOUT_SECONDS", 5, least=0.1, most=30)
KAFKA_API_VERSION = env.version("KAFKA_API_VERSION")
KAFKA_SESSION_TIMEOUT_MS = env.integer("KAFKA_SESSION_TIMEOUT_MS", 10_000, least=1000, most=1_800_000)
KAFKA_POLL_RECORDS = env.integer("KAFKA_POLL_RECORDS", 2000, least=1, most=10_000)
KAFKA_WRITERS = env.integer("KAFKA_WRITERS", 2, least=1, most=8)
KAFKA_POLL_BYTES = env.integer("KAFKA_POLL_BYTES", 4_000_000, least=100_000)
KAFKA_MAX_BATCH_BYTES = env.integer("KAFKA_MAX_BATCH_BYTES", 33_554_432, least=1_048_576, most=1_073_741_824)
KAFKA_REPLICATION_FACTOR = env.integer("KAFKA_REPLICATION_FACTOR", -1, least=-1, most=100)
# The embedded broker has transactions in name only.
KAFKA_TRANSACTIONS = env.flag("KAFKA_TRANSACTIONS", True)
SCHEMA_REGISTRY_URL = env.site("SCHEMA_REGISTRY_URL")
SCHEMA_REGISTRY_USERNAME = env.text("SCHEMA_REGISTRY_USERNAME")
SCHEMA_REGISTRY_PASSWORD = env.text("SCHEMA_REGISTRY_PASSWORD")
SCHEMA_REGISTRY_CAFILE = env.text("SCHEMA_REGISTRY_CAFILE")
SCHEMA_REGISTRY_TIMEOUT_SECONDS = env.seconds("SCHEMA_REGISTRY_TIMEOUT_SECONDS", 5, least=0.1, most=60)
NOT_COMPACTED = {"cleanup.policy": "delete"}
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
# What `create_topics` makes and `doctor` compares: partitions (as many as those of another topic that exists), and
# configuration where the broker's default is, or may be, wrong.
KAFKA_TOPICS: dict[str, dict] = {
    "transfer-requests": {"partitions": 12},
    "transfer-batches": {"partitions": 12},
    "PAYMENT_SUCCESS": {"partitions": 12},
    "PURCHASE_ORDER_RECEIVED": {"partitions": 12},
    "KITCHEN_TICKET_ITEM_STATUS_CHANGED": {"partitions": 12},
    "MATERIAL_TRANSFERRED": {"partitions": 12},
    "merchant-cdc": {"partitions": 12},
    "product-variant-cdc": {"partitions": 12},
    "notifications-in": {"partitions": 12, "config": NOT_COMPACTED | LOG_APPEND_TIME},
    "notifications-out": {
        "partitions": 12, "partitions_of": "notifications-in", "config": NOT_COMPACTED | LOG_APPEND_TIME,
    },
    "notifications-expired": {"partitions": 12, "partitions_of": "notifications-in", "config": NOT_COMPACTED},
    "notifications-changelog": {
        "partitions": 12, "partitions_of": "notifications-in",
        "config": {
            "cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1",
            "max.compaction.lag.ms": "60000", "delete.retention.ms": "86400000", **LOG_APPEND_TIME,
        },
    },
}  # fmt: skip

# -- Buffer ---------------------------------------------------------------------------------------
BUFFER_IDLE_SECONDS = env.seconds("BUFFER_IDLE_SECONDS", 300, least=0.1)
BUFFER_CAP_SECONDS = env.seconds("BUFFER_CAP_SECONDS", 1800, least=0.1)
BUFFER_MAX_BATCH = env.integer("BUFFER_MAX_BATCH", 500, least=1, most=100_000)
BUFFER_MAX_BYTES = env.integer("BUFFER_MAX_BYTES", 900_000, least=10_000)
BUFFER_MAX_EVENT_BYTES = env.integer("BUFFER_MAX_EVENT_BYTES", 65_536, least=256, most=4_000_000)
BUFFER_RETENTION_MONTHS = env.integer("BUFFER_RETENTION_MONTHS", 13, least=1, most=120)
BUFFER_HIGH_WATER = env.integer("BUFFER_HIGH_WATER", 1_000_000, least=1)
BUFFER_LEASE_SECONDS = env.seconds("BUFFER_LEASE_SECONDS", 60, least=1)
if BUFFER_CAP_SECONDS < BUFFER_IDLE_SECONDS:
    raise BadSetting("BUFFER_CAP_SECONDS: must not be shorter than BUFFER_IDLE_SECONDS")

# -- Ledger ---------------------------------------------------------------------------------------
LEDGER_UNKNOWN_STOCK = env.choice("LEDGER_UNKNOWN_STOCK", "park", ["park", "create"])
LEDGER_NEGATIVE_STOCK = env.choice("LEDGER_NEGATIVE_STOCK", "allow", ["allow", "park"])
LEDGER_EQUAL_ENDS = env.choice("LEDGER_EQUAL_ENDS", "park", ["park", "skip"])
DEBEZIUM_UNAVAILABLE_VALUE = env.text("DEBEZIUM_UNAVAILABLE_VALUE", "__debezium_unavailable_value")
if re.fullmatch(r"hex:(?!([0-9A-Fa-f]{2})+$).*", DEBEZIUM_UNAVAILABLE_VALUE):
    raise BadSetting("DEBEZIUM_UNAVAILABLE_VALUE: after `hex:` comes something else than bytes in hexadecimal digits")

# -- Throttler ------------------------------------------------------------------------------------
THROTTLER_TTL_SECONDS = env.integer("THROTTLER_TTL_SECONDS", 21_600, least=1)
THROTTLER_BUFFER_DAYS = env.integer("THROTTLER_BUFFER_DAYS", 3, least=2, most=30)
THROTTLER_DEFAULT_RATE = env.text("THROTTLER_DEFAULT_RATE", "10/s")
THROTTLER_OUTPUT_RATE = env.text("THROTTLER_OUTPUT_RATE")
THROTTLER_STALL_RECORDS = env.integer("THROTTLER_STALL_RECORDS", 20_000, least=100)
THROTTLER_MAX_MESSAGE_BYTES = env.integer("THROTTLER_MAX_MESSAGE_BYTES", 65_536, least=256, most=900_000)
THROTTLER_MAX_RECIPIENTS = env.integer("THROTTLER_MAX_RECIPIENTS", 1000, least=1, most=100_000)
THROTTLER_STORE = env.choice("THROTTLER_STORE", "django", ["django", "cassandra"])
CASSANDRA = parse_cassandra_url(env.text("CASSANDRA_URL")) if THROTTLER_STORE == "cassandra" else None
if THROTTLER_TTL_SECONDS > (THROTTLER_BUFFER_DAYS - 1) * 86_400:
    raise BadSetting("THROTTLER_TTL_SECONDS: must end a day before THROTTLER_BUFFER_DAYS do")

# -- Outbox ---------------------------------------------------------------------------------------
OUTBOX_POLL_SECONDS = env.seconds("OUTBOX_POLL_SECONDS", 60, least=0.05)
OUTBOX_BATCH = env.integer("OUTBOX_BATCH", 100, least=1, most=5000)
OUTBOX_MAX_RETRIES = env.integer("OUTBOX_MAX_RETRIES", 3, most=100)
OUTBOX_BACKOFF_BASE_SECONDS = env.seconds("OUTBOX_BACKOFF_BASE_SECONDS", 5, least=0.01)
OUTBOX_BACKOFF_CAP_SECONDS = env.seconds("OUTBOX_BACKOFF_CAP_SECONDS", 3600, least=0.01)
OUTBOX_LEASE_SECONDS = env.seconds("OUTBOX_LEASE_SECONDS", 300, least=1)
OUTBOX_EXPIRES_SECONDS = env.seconds("OUTBOX_EXPIRES_SECONDS", 86_400, least=1)
OUTBOX_RECONCILE_SECONDS = env.seconds("OUTBOX_RECONCILE_SECONDS", 120)
OUTBOX_GRACE_SECONDS = env.seconds("OUTBOX_GRACE_SECONDS", 5)
OUTBOX_PAUSE_AFTER_REFUSALS = env.integer("OUTBOX_PAUSE_AFTER_REFUSALS", 10, most=100)
OUTBOX_MAX_BYTES = env.integer("OUTBOX_MAX_BYTES", 500_000, least=1000)
OUTBOX_RETENTION_DAYS = env.integer("OUTBOX_RETENTION_DAYS", 30, least=1)
OUTBOX_ARCHIVE = env.text("OUTBOX_ARCHIVE", "drop")
if OUTBOX_ARCHIVE not in ("drop", "detach") and not Path(OUTBOX_ARCHIVE).is_absolute():
    raise BadSetting(f"OUTBOX_ARCHIVE: {OUTBOX_ARCHIVE!r} is not drop, detach or the full path of a directory")
if OUTBOX_ARCHIVE == "detach" and "sqlite" in DATABASES["default"]["ENGINE"]:
    raise BadSetting("OUTBOX_ARCHIVE: SQLite has no partitions to detach; name a directory instead")
OUTBOX_IDEMPOTENCY_DAYS = env.integer("OUTBOX_IDEMPOTENCY_DAYS", 7, least=1)
OUTBOX_CDC_TOPIC = env.text("OUTBOX_CDC_TOPIC", "outbox.outbox_message")
KAFKA_TOPICS[OUTBOX_CDC_TOPIC] = {"partitions": 3}
# Where other services promise messages: topic → producer → channels.
MESSAGES_IN = grants_from_text(env.text("MESSAGES_IN", "messages-in=email"))
KAFKA_TOPICS |= {topic: {"partitions": 12, "config": NOT_COMPACTED | LOG_APPEND_TIME} for topic in MESSAGES_IN}
# Where producers are told which of these records became letters.
MESSAGES_REFUSED_TOPIC = "messages-refused"
MESSAGES_REFUSED = env.flag("MESSAGES_REFUSED", True) and bool(MESSAGES_IN)
if MESSAGES_REFUSED_TOPIC in MESSAGES_IN:
    raise BadSetting(f"MESSAGES_IN: {MESSAGES_REFUSED_TOPIC} tells what was refused; what it says cannot be promised")
if MESSAGES_REFUSED:
    KAFKA_TOPICS[MESSAGES_REFUSED_TOPIC] = {"partitions": 12, "config": NOT_COMPACTED}
ATTEMPT_RETENTION_DAYS = env.integer("ATTEMPT_RETENTION_DAYS", 30, least=1)
WEBHOOK_RETENTION_DAYS = env.integer("WEBHOOK_RETENTION_DAYS", 30, least=1)

# -- E-mail ---------------------------------------------------------------------------------------
# How e-mail can leave (docs/adding.md): EMAIL_CHANNEL → class. HANDLERS is about the channels of the outbox, of which `email` is one.
CHANNELS = {
    "smtp": "notifications.channels.smtp.Smtp",
    "anymail": "notifications.channels.anymail.Anymail",
    "memory": "notifications.channels.local.Memory",
    "console": "notifications.channels.local.Console",
}
EMAIL_CHANNEL = env.choice("EMAIL_CHANNEL", "memory" if DEMO else "smtp", list(CHANNELS))
EMAIL_FROM = sender_from_text(env.text("EMAIL_FROM", "Spillway <orders@spillway.example>"))
EMAIL_SERVER = server_from_url(env.text("EMAIL_URL", "smtp://127.0.0.1:25"))
EMAIL_ESP = env.text("EMAIL_ESP")
EMAIL_RATE_PER_SECOND = env.number("EMAIL_RATE_PER_SECOND", 0)
EMAIL_UNCERTAIN = env.choice("EMAIL_UNCERTAIN", "retry", ["retry", "hold"])
EMAIL_TIMEOUT_SECONDS = env.seconds("EMAIL_TIMEOUT_SECONDS", 10, least=0.1, most=300)
EMAIL_WINDOW = env.integer("EMAIL_WINDOW", 1, least=1, most=50)
EMAIL_WEBHOOK_SECRETS = secrets_from_text(env.text("EMAIL_WEBHOOK_SECRETS"))
EMAIL_WEBHOOK_MAX_BYTES = env.integer("EMAIL_WEBHOOK_MAX_BYTES", 1_000_000, least=1000, most=2_500_000)
ANYMAIL = env.prefixed("ANYMAIL_*")
if EMAIL_CHANNEL == "anymail":
    esp_from_text(EMAIL_ESP)

API_RATE_PER_SECOND = env.number("API_RATE_PER_SECOND", 50)
API_MAX_BYTES = env.integer("API_MAX_BYTES", 262_144, least=1024)

DEAD_LETTER_RETENTION_DAYS = env.integer("DEAD_LETTER_RETENTION_DAYS", 180, least=1)
AUDIT_RETENTION_DAYS = env.integer("AUDIT_RETENTION_DAYS", 0)
REPLAY_HOLD_SECONDS = env.seconds("REPLAY_HOLD_SECONDS", 30, most=3600)
REPLAY_CHUNK = env.integer("REPLAY_CHUNK", 500, least=1, most=500)
REVEAL_SECONDS = env.integer("REVEAL_SECONDS", 900, least=10, most=86_400)

# -- Telling people ---------------------------------------------------------------------------------
SITE_URL = env.site("SITE_URL")
RUNBOOK_URL = env.site("RUNBOOK_URL")
# Those that speak HTTP or SMTP to one service: none of them starts a program, or writes to this machine.
SCHEMAS = (
    "slack workflow workflows discord gchat mmost mmosts rocket rockets webex zulip tgram ntfy ntfys gotify gotifys "
    "pagerduty opsgenie incidentio ilert betterstack splunk signl4 pover mailto mailtos json jsons form forms"
)
NOTIFY_SCHEMAS = env.listing("NOTIFY_SCHEMAS", SCHEMAS.split())
NOTIFY_ALLOWED_HOSTS = env.listing("NOTIFY_ALLOWED_HOSTS")
NOTIFY_SECRETS_DIR = env.text("NOTIFY_SECRETS_DIR")
NOTIFY_TIMEOUT_SECONDS = env.seconds("NOTIFY_TIMEOUT_SECONDS", 10, least=1, most=30)
NOTIFY_WINDOW_SECONDS = env.seconds("NOTIFY_WINDOW_SECONDS", 600, least=1)
NOTIFY_REMIND_SECONDS = env.seconds("NOTIFY_REMIND_SECONDS", 14_400)
NOTIFY_RETENTION_DAYS = env.integer("NOTIFY_RETENTION_DAYS", 30, least=1)

# -- Registries: adding something is one class or function and one line here (docs/adding.md), or an
#    installed package that SPILLWAY_APPS names (docs/extensions.md) --------------------------------
STREAMS: dict[str, dict] = {
    "transfer-requests": {
        "CLASS": "buffer.streams.TransferRequests",
        "TOPIC": "transfer-requests",
        "OUTPUT": "transfer-batches",
    }
}
# What records may be written in besides JSON: FORMAT of an entry of STREAMS or MOVEMENTS, or TOPIC_FORMATS → a function
# of FORMAT_OPTIONS.
FORMATS = {
    "avro": "config.formats.avro.avro",
    "protobuf": "config.formats.protobuf.protobuf",
    "jsonschema": "config.formats.registry.jsonschema",
}
TOPIC_FORMATS = formats_from_text(env.text("TOPIC_FORMATS"))  # of notifications-in, and of the topics of MESSAGES_IN
# Each function turns a message of its topic into what it does to stock. In its place may stand a mapping: EFFECT, the
# function, and READABLE, LOCKED, REFERENCES, the paths of a message that may be read, that stay in a copy, that name it;
# and WORDS, what is counted (docs/extensions.md#your-own-words).
MOVEMENTS: dict[str, str | dict] = {
    "PAYMENT_SUCCESS": "buffer.ledger.topics.sold",
    "PURCHASE_ORDER_RECEIVED": "buffer.ledger.topics.received",
    "KITCHEN_TICKET_ITEM_STATUS_CHANGED": "buffer.ledger.topics.cooked",
    "MATERIAL_TRANSFERRED": "buffer.ledger.topics.transferred",
    "merchant-cdc": "buffer.ledger.topics.merchant",
    "product-variant-cdc": "buffer.ledger.topics.variant",
}
FLOWS = [
    "buffer.flow.Aggregator",
    "buffer.ledger.flow.Ledger",
    "notifications.flow.Orders",
    "throttler.flow.Throttler",
    "outbox.intake.flow.MessagesIn",
    "outbox.flow.Outbox",
    "outbox.audit_log.flow.Audit",
]
# What /v1 of the HTTP API is made of: a django-ninja router each.
API_ROUTERS = ["notifications.api.orders.router", "notifications.api.messages.router", "throttler.api.router"]
# What delivers outbox messages: channel of a message → class. CHANNELS is about how the mails of `email` leave.
HANDLERS: dict[str, str] = {
    "kafka": "outbox.channels.kafka.KafkaHandler",
    "email": "notifications.email_handler.EmailHandler",
}
# What sends a person the link to set a password: address, subject, text → why it was not accepted, or empty.
ACCOUNT_MAIL = "notifications.account_mail.send"
# What the daily round deletes besides partitions: functions of the time that return how many rows went.
SWEEPS = [
    "config.processes.beat.sweep_logins",
    "outbox.groups.counts.sweep_hours",
    "outbox.replay_batches.items.sweep_items",
    "outbox.letters.edits.sweep_copies",
    "notifications.webhooks.inbox.sweep_old",
    "outbox.processes.heartbeat.sweep_processes",
    "outbox.notices.incidents.sweep_notices",
    "outbox.sign_in.models.sweep_sign_ins",
]
# What writes down that a worker lives; empty: nothing does.
HEARTBEAT = "outbox.processes.heartbeat.Heartbeat"
PARTITIONS = [
    "buffer.partitioned.EVENTS",
    "outbox.partitioned.DEAD_LETTERS",
    "outbox.partitioned.MESSAGES",
    "outbox.partitioned.ATTEMPTS",
    "notifications.partitioned.DELIVERIES",
    "throttler.partitioned.OVERFLOW",
]

# -- Celery ---------------------------------------------------------------------------------------
# Without a broker beat runs the tasks itself, in one process: nothing in correctness depends on Celery.
CELERY_BROKER_URL = env.brokers("CELERY_BROKER_URL", "memory://")
CELERY_TASK_ALWAYS_EAGER = CELERY_BROKER_URL == "memory://"
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TIMEZONE = "UTC"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # for ever: after the hundredth, in the first hour, the worker would end
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_METRICS_PORT = env.integer("CELERY_METRICS_PORT", 0, most=65535)
CELERY_ALIVE_FILE = env.text("CELERY_ALIVE_FILE", "")
CELERY_BEAT_SCHEDULE_FILENAME = env.text("CELERY_BEAT_SCHEDULE", str(BASE_DIR / "var" / "beat-schedule"))
DAILY = {"schedule": crontab(hour="3", minute="10"), "options": {"expires": 3600}}
EVERY_MINUTE = {"schedule": 60.0, "options": {"expires": 60}}
EVERY_HOUR = {"schedule": crontab(minute="40"), "options": {"expires": 3600}}
CELERY_BEAT_SCHEDULE = {
    # Not an interval: a beat that is started anew every day would never come to its end.
    "rotate-partitions": {"task": "outbox.tasks.rotate_partitions", **DAILY},
    "recover-claims": {"task": "outbox.tasks.recover_claims", **EVERY_MINUTE},
    "verify-letters": {"task": "outbox.tasks.verify_letters", **EVERY_MINUTE},
    "apply-webhooks": {"task": "notifications.tasks.apply_webhooks", **EVERY_MINUTE},
    "relay-outbox": {"task": "outbox.tasks.relay_outbox", **EVERY_MINUTE},
    "seal-actions": {"task": "outbox.tasks.seal_actions", **EVERY_MINUTE},
    "sweep-mirror": {"task": "throttler.tasks.sweep_mirror", **EVERY_HOUR},
}

# -- Installed packages that add to what stands above (docs/extensions.md) --------------------------
SPILLWAY_APPS = load(env.listing("SPILLWAY_APPS"))
ADDED_APPS: list[str] = []  # their labels
ADDED_ROLES: dict[str, list[str]] = {}  # role → rights
extend(globals(), SPILLWAY_APPS, env)
