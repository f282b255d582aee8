"""The examples in deploy/ run everything there is, with the rights it needs and no more."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache

import pytest
from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections

from config.flows import flows
from tests.docs.test_docs_complete import variables
from tests.tree import ROOT, read

SYSTEMD = ROOT / "deploy" / "systemd"
COMPOSE = ROOT / "deploy" / "compose.production.yaml"
OPTIONAL = {"listen_outbox"}  # only where Debezium runs: no part of `Flow.workers`
JOBS = {"migrate", "beat"}  # change tables
SENDERS = {"relay", "listen", "beat"}  # log in to the mail server
LEAST_EXPOSED = 1.5  # what `systemd-analyze security` says at most, of 10


def commands() -> set[str]:
    """What has to run all the time besides web and beat."""
    workers = {worker.command for flow in flows() for worker in flow.workers()}
    return workers | {"replay_topic", "replay_letters", "notify_people"} | OPTIONAL


@cache
def units() -> dict[str, str]:
    """The text of each unit by its short name: ingest, web …"""
    return {
        path.name.removeprefix("spillway-").removesuffix(".service").removesuffix("@"): read(path)
        for path in sorted(SYSTEMD.glob("*.service"))
    }


@cache
def services() -> dict[str, str]:
    """The text of each service of the compose file."""
    block = read(COMPOSE).split("\nservices:\n")[1].split("\nvolumes:\n")[0]
    parts = re.split(r"^  (?:#.*\n  )?(\w+):\n", block, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_files_are_read_at_all():
    assert {"web", "beat", "migrate"} <= units().keys()
    assert {"web", "beat", "worker", "migrate", "postgres"} <= services().keys()


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_worker_has_a_unit_and_a_service(command):
    assert any(f"manage.py {command}" in text for text in units().values())
    assert any(f"manage.py {command}" in text for text in services().values())


# -- systemd -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(units()))
def test_a_unit_gives_up_rights_and_never_gives_up(name):
    text = units()[name]
    for line in ("User=spillway", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes"):
        assert line in text
    if name != "migrate":
        assert "Restart=always" in text
        assert "StartLimitIntervalSec=0" in text
        assert "PartOf=spillway.target" in text


@pytest.mark.parametrize("name", sorted(units()))
def test_only_what_changes_tables_is_their_owner(name):
    assert ("database_url_migrate" in units()[name]) == (name in JOBS)


@pytest.mark.parametrize("name", sorted(units()))
def test_a_unit_reads_the_secrets_that_it_uses(name):
    given = re.findall(r"^LoadCredential=(\w+):", units()[name], re.MULTILINE)
    used = {"secret_key", "database_url", "kafka_sasl_password"}
    used |= {"email_url"} if name in {*SENDERS, "web"} else set()
    used |= {"email_webhook_secrets"} if name == "web" else set()
    assert sorted(given) == sorted(used)
    for secret in given:
        assert f"Environment={secret.upper()}_FILE=%d/{secret}\n" in units()[name]
        assert re.search(rf"^#   {secret} ", read(SYSTEMD / "spillway.env.example"), re.MULTILINE)


@pytest.mark.parametrize("name", sorted(units()))
@pytest.mark.processes
def test_a_unit_is_confined(name):
    assert re.search(r"^UMask=0077\nMemoryMax=\d+[MG]$", units()[name], re.MULTILINE)
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    (path,) = SYSTEMD.glob(f"spillway-{name}*.service")
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert float(re.search(r"Overall exposure level for \S+: ([\d.]+)", told.stdout)[1]) <= LEAST_EXPOSED, told.stdout


def test_no_two_throttlers_of_one_target_or_service_have_one_name():
    assert "manage.py run_throttler --instance %H-%i " in units()["throttler"]  # one file serves several hosts
    assert 'manage.py run_throttler --instance "$$HOSTNAME"' in services()["throttler"]  # several replicas


def test_the_target_starts_every_unit_but_the_optional_ones():
    wanted = re.findall(r"spillway-([\w-]+)(?:@\d+)?\.service", read(SYSTEMD / "spillway.target"))
    assert set(wanted) == units().keys() - {"migrate", "listen"}


def test_prometheus_is_told_the_ports_of_the_target():
    ports = set(re.findall(r"@(\d+)\.service", read(SYSTEMD / "spillway.target")))
    assert len(ports) == len(re.findall(r"@\d+\.service", read(SYSTEMD / "spillway.target")))
    ports |= set(re.findall(r"CELERY_METRICS_PORT=(\d+)", units()["beat"]))
    assert ports <= set(re.findall(r'"host:(\d+)"', read(ROOT / "docs" / "deploy.md")))


@pytest.mark.processes
def test_the_example_environment_is_fit_for_production(tmp_path):
    lines = re.findall(r"^([A-Z_]+)=(.*)$", read(SYSTEMD / "spillway.env.example"), re.MULTILINE)
    given = {name: value.strip('"') for name, value in lines}
    names = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "SYSTEMROOT")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    secret = "x" * 25 + "0123456789abcdefghijklmnopqrstuvwxyz"
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**environment, **given, "SECRET_KEY": secret, "DATABASE_URL": f"sqlite:///{tmp_path}/none.sqlite3"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# -- compose -----------------------------------------------------------------------------------------
def test_in_containers_too_only_what_changes_tables_is_their_owner():
    owners = {
        name for name, text in services().items() if "DATABASE_URL_FILE: /run/secrets/database_url_migrate" in text
    }
    assert owners == {"worker", "migrate"}


def test_every_secret_that_is_read_is_given_and_every_one_given_is_described():
    text = read(COMPOSE)
    read_from = set(re.findall(r"^ +[A-Z_]+_FILE: /run/secrets/(\w+)", text, re.MULTILINE))
    defined = set(re.findall(r"^  (\w+): \{file: \"", text, re.MULTILINE))
    assert read_from == defined
    header = text.split("\nname:")[0]
    assert all(re.search(rf"^#   {name} ", header, re.MULTILINE) for name in defined)
    for listed in re.findall(r"secrets: \[([^\]]+)\]", text):
        assert set(listed.split(", ")) <= defined


def test_a_container_reads_the_secrets_that_it_uses():
    assert {name for name, text in services().items() if "email_url" in text} == {"relay", "listen", "worker", "web"}
    assert {name for name, text in services().items() if "email_webhook_secrets" in text} == {"web"}
    assert {name for name, text in services().items() if "celery_broker_url" in text} == {"beat", "worker"}
    shared = re.search(r"^  secrets: \[([^\]]+)\]", read(COMPOSE), re.MULTILINE)[1].split(", ")
    assert shared == ["secret_key", "database_url", "kafka_sasl_password"]


def test_memory_is_limited():
    assert "\n  mem_limit: " in read(COMPOSE).split("x-environment:")[0]  # of all that is ours
    assert all("    mem_limit: " in services()[name] for name in ("postgres", "rabbitmq", "cassandra"))


@pytest.mark.parametrize(
    "place", ["deploy/systemd/spillway-web.service", "deploy/docker/Dockerfile", "config/processes/supervisor.py"]
)
def test_the_web_server_opens_no_control_socket(place):
    assert "--no-control-socket" in read(ROOT / place)


def test_the_container_of_capture_starts_only_when_asked_for():
    assert [name for name, text in services().items() if "profiles: [cdc]" in text] == ["listen"]


def test_the_containers_of_the_other_overflow_store_start_only_when_asked_for():
    assert {name for name, text in services().items() if "profiles: [cassandra]" in text} == {"cassandra", "store"}
    assert "manage.py create_overflow_store" in services()["store"]
    assert "commitlog_sync: batch" in services()["cassandra"]


def test_the_containers_that_observe_start_only_when_asked_for():
    observers = {name for name, text in services().items() if "profiles: [observe]" in text}
    assert observers == {"prometheus", "alertmanager", "grafana"}
    for name in observers:  # none of them is open to others
        assert re.findall(r'ports: \["(.+?):', services()[name]) == ["127.0.0.1"]
        for folder in re.findall(r"(\./[\w./-]+):/\S+:ro", services()[name]):
            assert (ROOT / "deploy" / folder).exists()


def test_prometheus_scrapes_every_container_that_serves_metrics():
    told = read(ROOT / "deploy" / "prometheus" / "prometheus.yml")
    serving = {name for name, text in services().items() if "<<: *worker" in text or "CELERY_METRICS_PORT" in text}
    assert set(re.search(r"names: \[(.+?)\]", told)[1].split(", ")) == serving
    (port,) = set(re.findall(r'METRICS_PORT: "(\d+)"', read(COMPOSE)))
    assert f"port: {port}\n" in told
    jobs = set(re.findall(r"job_name: (\S+)", told))
    assert set(re.findall(r'job="([^"]+)"', read(ROOT / "deploy" / "prometheus" / "alerts.yml"))) <= jobs


@pytest.mark.processes
def test_the_configuration_of_prometheus_is_right():
    promtool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    command = [promtool, "check", "config", ROOT / "deploy" / "prometheus" / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_grafana_is_given_what_the_dashboards_ask_for():
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    assert "url: http://prometheus:9090" in read(provisioning / "datasources" / "prometheus.yml")
    assert "type: prometheus" in read(provisioning / "datasources" / "prometheus.yml")
    folder = re.search(r"path: ([^}]+)}", read(provisioning / "dashboards" / "spillway.yml"))[1]
    assert f"./grafana/dashboards:{folder}:ro" in services()["grafana"]


def test_every_priority_has_somebody_to_tell():
    told = read(ROOT / "deploy" / "prometheus" / "alertmanager.yml")
    rules = read(ROOT / "deploy" / "prometheus" / "alerts.yml")
    alerts = len(re.findall(r"- alert: ", rules))
    priorities = re.findall(r"labels: \{severity: (?:page|ticket), priority: (.+)\}\n", rules)
    assert len(priorities) == alerts
    assert set(priorities) - {"P1", "P2", "P3"} == {"'{{ if eq $labels.by \"spillway\" }}P1{{ else }}P2{{ end }}'"}
    routed = re.findall(r"matchers: \['priority=\"(P\d)\"'\]\n +receiver: (\S+)", told)
    assert [priority for priority, _ in routed] == ["P1", "P2"]  # the rest is P3's
    named = set(re.findall(r"- name: (\S+)", told))
    assert {receiver for _, receiver in routed} | {re.search(r"receiver: (\S+)", told)[1]} == named


def test_the_archive_of_the_outbox_outlives_its_container():
    assert "archive:/var/lib/spillway/archive" in services()["worker"]
    assert "/var/lib/spillway/archive" in read(ROOT / "deploy" / "docker" / "Dockerfile")


def test_an_installation_without_docker_is_told_what_to_install():
    of_a_checkout = {"demo.txt", "docs.txt", "release.txt", "test.txt"}
    needed = {path.name for path in (ROOT / "requirements").glob("*.txt")} - of_a_checkout
    assert (
        set(re.findall(r"pip install --require-hashes -r requirements/(\S+)", read(ROOT / "docs" / "deploy.md")))
        == needed
    )


def test_the_image_has_what_it_needs_to_send_mail_and_one_django():
    dockerfile = read(ROOT / "deploy" / "docker" / "Dockerfile")
    (installed,) = re.findall(r"for name in (.+); do", dockerfile)
    assert installed.split() == ["base", "anymail", "cassandra", "${DRIVER}", "${EXTRAS}"]
    assert "ARG EXTRAS=\n" in dockerfile, "traces are for who asks for them"
    (copied,) = re.findall(r"COPY (requirements/.+?) /requirements/", dockerfile, re.DOTALL)
    assert set(re.findall(r"requirements/(\S+)\.txt", copied)) == {
        "base",
        "anymail",
        "aws",
        "cassandra",
        "${DRIVER}",
        "oidc",
        "otel",
    }
    for app in {config.name for config in apps.get_app_configs()} & {"config", "outbox", "buffer", "notifications"}:
        assert f"COPY {app} ./{app}" in dockerfile


@pytest.mark.parametrize("name", ["anymail", "aws", "demo", "oidc", "otel", "test"])
def test_no_extra_brings_another_version_of_what_base_has(name):
    def pins(text):
        return set(re.findall(r"^([\w.-]+)(?:\[[^\]]*\])?==(\S+)", text, re.MULTILINE))

    base = pins(read(ROOT / "requirements" / "base.txt"))
    names = {package for package, _ in base}
    extra = {pin for pin in pins(read(ROOT / "requirements" / f"{name}.txt")) if pin[0] in names}
    assert extra <= base


# -- the proxy ---------------------------------------------------------------------------------------
def test_the_proxy_takes_in_slow_requests_and_says_who_asks():
    told = read(ROOT / "deploy" / "nginx" / "spillway.conf")
    for line in (
        "proxy_request_buffering on;", "client_header_timeout 10s;", "client_body_timeout 10s;",
        "proxy_set_header X-Forwarded-Proto $scheme;",
        "proxy_set_header X-Forwarded-For $remote_addr;",  # not $proxy_add_x_forwarded_for: clients write that one, too
    ):  # fmt: skip
        assert line in told
    megabytes = int(re.search(r"client_max_body_size (\d+)m;", told)[1])
    assert megabytes * 1_000_000 >= 2_500_000  # EMAIL_WEBHOOK_MAX_BYTES at most
    assert "deploy/nginx/spillway.conf" in read(ROOT / "docs" / "deploy.md")


# -- the pooler --------------------------------------------------------------------------------------
def test_the_pooler_knows_the_roles_that_the_grants_make():
    made = set(re.findall(r"^CREATE ROLE (\w+)", read(ROOT / "deploy" / "grants" / "postgresql.sql"), re.MULTILINE))
    named = re.findall(r"ALTER ROLE (\w+)|\((spillway_\w+)\)", read(ROOT / "deploy" / "pgbouncer" / "role.sql"))
    assert {role or owner for role, owner in named} == made


# -- alerts ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("alert", "name", "number"),
    [
        ("SpillwayOldestPending", "BUFFER_CAP_SECONDS", r"> (\d+) \+ 300"),
        ("SpillwayBufferFull", "BUFFER_HIGH_WATER", r">= (\d+)"),
        ("SpillwayOutboxLate", "OUTBOX_POLL_SECONDS", r"> (\d+) \+ 30"),
        ("SpillwayCaptureLag", "OUTBOX_GRACE_SECONDS", r"> (\d+)"),
        ("SpillwayPollerCarries", "OUTBOX_GRACE_SECONDS", r"<= (\d+)"),
    ],
)
def test_an_alert_fits_the_default_of_its_setting(alert, name, number):
    rule = read(ROOT / "deploy" / "prometheus" / "alerts.yml").split(f"- alert: {alert}\n")[1].split("- alert:")[0]
    assert int(re.search(number, rule)[1]) == dict(variables())[name]


def test_every_gauge_of_trouble_has_an_alert():
    rules = read(ROOT / "deploy" / "prometheus" / "alerts.yml")
    for word in ("breaker_open", "channel_paused", "outbox_held", "outbox_processing_stuck", "cdc_lag_seconds",
                 "partition_stopped", "dead_letters_open", "webhooks_open", "idempotency_overdue_seconds"):  # fmt: skip
        assert f"spillway_{word}" in rules


# -- rights ------------------------------------------------------------------------------------------
def tables() -> set[str]:
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        return set(connections[DEFAULT_DB_ALIAS].introspection.table_names(cursor))


@pytest.mark.django_db
def test_rights_are_about_tables_that_exist():
    ours = tables()
    mysql = read(ROOT / "deploy" / "grants" / "mysql_after_migrate.sql")
    named = set(re.findall(r"GRANT DELETE ON spillway\.(\w+)", mysql))
    assert named
    assert named <= ours
    postgresql = read(ROOT / "deploy" / "grants" / "postgresql_after_migrate.sql")
    for name in re.findall(r"GRANT DELETE ON (\w+)", postgresql):
        assert name in ours
    append_only = re.search(r"relname ~ '\^\(([a-z_|]+)\)'", postgresql.split("-- The ledger")[1])[1]
    assert set(append_only.split("|")) <= ours


@pytest.mark.django_db
def test_nothing_that_flows_can_be_deleted_by_the_application():
    postgresql = read(ROOT / "deploy" / "grants" / "postgresql_after_migrate.sql")
    pattern = re.search(r"relname ~ '(\^[^']+)' \\gexec\n-- Lifting", postgresql)[1]
    flowing = {
        model._meta.db_table
        for model in apps.get_models()
        if model._meta.app_label in ("buffer", "outbox", "notifications")
    }
    assert all(re.match(pattern, table) for table in flowing)
    mysql = read(ROOT / "deploy" / "grants" / "mysql_after_migrate.sql")
    deleted = flowing & set(re.findall(r"GRANT DELETE ON spillway\.(\w+)", mysql))
    kept_by_people = {"outbox_savedview", "outbox_viewerzone", "outbox_signin", "outbox_subscription", "outbox_notice"}
    assert deleted == {"notifications_suppression", "outbox_workerprocess"} | kept_by_people


def test_workers_report_the_version_of_the_project(settings):
    assert tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["version"] == settings.VERSION
