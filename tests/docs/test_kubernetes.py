"""deploy/kubernetes builds and is valid, runs everything there is, and gives no pod a right or a secret too many."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.conf import settings
from django.urls import get_resolver

from buffer.ingest.handler import LOW_WATER
from config.telemetry.activity import HANGS
from tests.docs.test_deployment import OPTIONAL, commands
from tests.docs.test_docs_complete import catalogue, exposed, variables
from tests.tree import ROOT, read

pytestmark = pytest.mark.processes
yaml = pytest.importorskip("yaml", reason="needs kubernetes-validate")
jsonschema = pytest.importorskip("jsonschema", reason="needs kubernetes-validate")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("small", "large")
VERSION = "1.32"
OWNER, MAIL = "spillway-owner", "spillway-mail"
# What we use of KEDA's ScaledObject; its own schema is in no package.
SCALED = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"}, "kind": {"const": "ScaledObject"}, "metadata": {"type": "object"},
        "spec": {
            "type": "object", "additionalProperties": False, "required": ["scaleTargetRef", "triggers"],
            "properties": {
                "scaleTargetRef": {
                    "type": "object", "additionalProperties": False, "required": ["name"],
                    "properties": {"name": {"type": "string"}, "kind": {"enum": ["Deployment", "StatefulSet"]}},
                },
                "minReplicaCount": {"type": "integer"}, "maxReplicaCount": {"type": "integer"},
                "advanced": {
                    "type": "object", "additionalProperties": False,
                    "properties": {"horizontalPodAutoscalerConfig": {"type": "object", "required": ["behavior"]}},
                },
                "triggers": {
                    "type": "array", "minItems": 1, "items": {
                        "type": "object", "additionalProperties": False, "required": ["type", "metadata"],
                        "properties": {
                            "type": {"const": "prometheus"},
                            "metadata": {
                                "type": "object", "additionalProperties": {"type": "string"},
                                "required": ["serverAddress", "query", "threshold"],
                            },
                        },
                    },
                },
            },
        },
    },
}  # fmt: skip


@cache
def objects(overlay: str) -> list[dict[str, Any]]:
    program = next((found for name in ("kustomize", "kubectl") if (found := shutil.which(name))), "")
    if not program:
        pytest.skip("neither kustomize nor kubectl is installed")
    command = [program, "build" if os.path.basename(program) == "kustomize" else "kustomize", str(FOLDER / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def of_kind(overlay: str, *kinds: str) -> Iterator[dict[str, Any]]:
    return (one for one in objects(overlay) if one["kind"] in kinds)


def pods(overlay: str) -> dict[str, dict[str, Any]]:
    """The spec of each pod, by the name of what makes it."""
    made = of_kind(overlay, "Deployment", "StatefulSet", "Job")
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in made}


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return only


def secrets_of(pod: dict[str, Any]) -> set[str]:
    return {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_valid(overlay):
    assert len(objects(overlay)) > 15
    for one in objects(overlay):
        if one["kind"] == "ScaledObject":
            jsonschema.validate(one, SCALED)
        else:
            kubernetes_validate.validate(one, VERSION, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_that_has_to_run_runs_and_every_command_exists(overlay):
    run = {" ".join(container(pod).get("command", [])) for pod in pods(overlay).values()}
    started = {words for text in run for words in re.findall(r"manage\.py (\w+)", text)}
    assert started == commands() | {"migrate", "create_topics"}
    assert sum("celery -A config" in text for text in run) == 2
    idle = {one["metadata"]["name"] for one in of_kind(overlay, "Deployment") if one["spec"].get("replicas") == 0}
    assert {" ".join(container(pods(overlay)[name])["command"][2:]) for name in idle} == OPTIONAL


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_name_in_the_environment_is_a_setting(overlay):
    known = {name for name, _default in variables()} | {"POD_NAME", "POD_IP", "HOSTS", "PROMETHEUS_MULTIPROC_DIR"}
    (config,) = of_kind(overlay, "ConfigMap")
    given = set(config["data"])
    for pod in pods(overlay).values():
        given |= {entry["name"] for entry in container(pod).get("env", [])}
        assert container(pod)["envFrom"] == [{"configMapRef": {"name": config["metadata"]["name"]}}]
    assert {name for name in given if name.removesuffix("_FILE") not in known and name not in known} == set()
    for name, value in config["data"].items():  # a secret is a file, of which the environment has the place alone
        assert not re.search(r"SECRET|PASSWORD|_URL", name) or value.startswith("/run/secrets/"), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_is_confined_and_reads_the_secrets_that_it_uses(overlay):
    for name, pod in pods(overlay).items():
        app, context = container(pod), pod["securityContext"]
        assert pod["automountServiceAccountToken"] is False
        assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), name
        assert app["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {"limits", "requests"} <= app["resources"].keys(), name
        assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in app["volumeMounts"]}
        files = [entry["value"] for entry in app.get("env", []) if entry["name"].endswith("_FILE")]
        assert all(any(file.startswith(f"{mount['mountPath']}/") for mount in app["volumeMounts"]) for file in files)
    holders = {
        secret: {name for name, pod in pods(overlay).items() if secret in secrets_of(pod)} for secret in (OWNER, MAIL)
    }
    assert holders == {OWNER: {"celery", "migrate"}, MAIL: {"relay", "listen", "web", "celery"}}
    made = set(re.findall(r"create secret generic (\S+)", read(FOLDER / "README.md")))
    assert made == {secret for pod in pods(overlay).values() for secret in secrets_of(pod)}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_worker_lives_while_it_gets_on_and_ends_in_its_own_time(overlay):
    workers = [one for one in of_kind(overlay, "Deployment", "StatefulSet") if one["metadata"]["labels"].get("part")]
    assert {container(one["spec"]["template"]["spec"])["command"][2] for one in workers} == commands()
    for one in workers:
        pod = one["spec"]["template"]["spec"]
        assert container(pod)["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}
        assert pod["terminationGracePeriodSeconds"] >= 60
    (throttler,) = of_kind(overlay, "StatefulSet")
    assert container(throttler["spec"]["template"]["spec"])["command"][-1] == "$(POD_NAME)"
    beat = next(one for one in of_kind(overlay, "Deployment") if one["metadata"]["name"] == "beat")
    assert (beat["spec"]["replicas"], beat["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_what_scales_is_given_no_number_and_no_more_than_there_are_partitions():
    names = {exposed(metric) for metric in catalogue()}
    workloads = {one["metadata"]["name"]: one for one in of_kind("large", "Deployment", "StatefulSet")}
    partitions = min(
        entry["partitions"]
        for name, entry in settings.KAFKA_TOPICS.items()
        if "partitions_of" not in entry and not name.startswith("outbox.")
    )
    scaled = list(of_kind("large", "ScaledObject"))
    assert {one["metadata"]["name"] for one in scaled} == {"ingest", "track", "intake", "relay", "throttler"}
    for one in scaled:
        target = workloads[one["spec"]["scaleTargetRef"]["name"]]
        assert target["kind"] == one["spec"]["scaleTargetRef"].get("kind", "Deployment")
        assert "replicas" not in target["spec"]
        assert 1 < one["spec"]["minReplicaCount"] <= one["spec"]["maxReplicaCount"] <= partitions
        query = one["spec"]["triggers"][0]["metadata"]["query"]
        read_metrics = re.findall(r"spillway_\w+", query)
        assert set(read_metrics) <= names
        assert query.count('{namespace="spillway"') == len(read_metrics), "what another installation counts is not ours"


# What Prometheus has read of each of three pods of web, and the seconds that KEDA is told; told nothing, it stays at the minimum.
STOPPED = 'spillway_partition_stopped{{namespace="spillway",group="{}",topic="events",partition="1"}}'
READERS = {"ingest": "buffer-ingest", "track": "buffer-track", "intake": "outbox-intake", "throttler": "throttler"}
PENDING = 'spillway_buffer_pending_events{namespace="spillway",stream="events"}'
STALLED = 'spillway_throttler_stalled{{namespace="spillway",partition="{}"}}'
CLOSED = 'spillway_channel_closed{{namespace="{}",channel="{}"}}'
EMAIL, KAFKA = CLOSED.format("spillway", "email"), CLOSED.format("spillway", "kafka")
CASES = [
    *((name, {STOPPED.format(group): stopped}, left) for name, group in READERS.items()
      for stopped, left in ((0, 900), (1, 3))),
    ("ingest", {STOPPED.format("buffer-track"): 1}, 900),
    ("ingest", {PENDING: LOW_WATER * settings.BUFFER_HIGH_WATER - 1}, 900),
    ("ingest", {PENDING: LOW_WATER * settings.BUFFER_HIGH_WATER}, None),
    ("throttler", {STALLED.format(0): 1, STALLED.format(1): 0}, 900),
    ("throttler", {STALLED.format(0): 0, STALLED.format(1): 1}, 3),
    ("relay", {}, 600),
    ("relay", {EMAIL: 0, KAFKA: 0}, 600),
    ("relay", {EMAIL: 1, KAFKA: 0}, 40),
    ("relay", {EMAIL: 0, KAFKA: 1}, 600),
    ("relay", {EMAIL: 1, KAFKA: 1}, None),
    ("relay", {CLOSED.format("other", "email"): 1}, 600),
]  # fmt: skip


def test_nothing_scales_for_what_waits_for_people_or_for_the_other_side(tmp_path):
    program = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if not program:
        pytest.skip("promtool is not installed")
    queries = {
        one["metadata"]["name"]: one["spec"]["triggers"][0]["metadata"]["query"]
        for one in of_kind("large", "ScaledObject")
    }
    lag = 'spillway_consumer_lag_seconds{{namespace="{}",group="{}",topic="events",partition="{}"}}'
    oldest = 'spillway_outbox_oldest_pending_seconds{{namespace="{}",channel="{}"}}'
    waiting = {
        **{lag.format(space, group, partition): seconds for group in READERS.values()
           for space, partition, seconds in (("spillway", 0, 3), ("spillway", 1, 900), ("other", 0, 5000))},
        oldest.format("spillway", "email"): 600, oldest.format("spillway", "kafka"): 40, oldest.format("other", "email"): 7000,
    }  # fmt: skip
    tests = [
        {
            "input_series": [
                {"series": series.replace("{", f'{{instance="web-{pod}",'), "values": str(value)}
                for series, value in (waiting | shown).items()
                for pod in (1, 2, 3)
            ],
            "promql_expr_test": [
                {
                    "expr": queries[name], "eval_time": "0m",
                    "exp_samples": [] if asked is None else [{"labels": "{}", "value": asked}],
                }
            ],
        }
        for name, shown, asked in CASES
    ]  # fmt: skip
    (tmp_path / "scaling.yml").write_text(yaml.safe_dump({"tests": tests}))
    done = subprocess.run(
        [program, "test", "rules", str(tmp_path / "scaling.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nobody_reaches_a_pod_but_who_is_named(overlay):
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(overlay, "NetworkPolicy")}
    assert policies["spillway"]["podSelector"] == {}, "every pod of the namespace"
    assert set(policies["spillway"]["policyTypes"]) == {"Ingress", "Egress"}
    assert all(rule["from"] for policy in policies.values() for rule in policy["ingress"])


def test_pods_reach_the_ports_that_our_own_examples_name():
    """PgBouncer's and the collector's among them."""
    (pgbouncer,) = re.findall(
        r"^listen_port = (\d+)", read(ROOT / "deploy" / "pgbouncer" / "pgbouncer.ini"), re.MULTILINE
    )
    (collector,) = re.findall(r"OTLP_ENDPOINT=http://\w+:(\d+)", read(ROOT / "docs" / "traces.md"))
    (policy,) = (one for one in of_kind("small", "NetworkPolicy") if one["metadata"]["name"] == "spillway")
    reached = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert {int(pgbouncer), int(collector), 2525} <= reached


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_migrate_runs_alone_with_all_that_it_needs(overlay):
    commands = re.findall(r"^    (kubectl .+)$", read(FOLDER / "README.md").split("## A version")[1], re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["-n", "apply", "-n", "apply"]
    assert "delete job migrate" in commands[0]
    assert "--cascade=foreground" in commands[0], "its pod may still run, and two would migrate side by side"
    assert "condition=complete job/migrate" in commands[2]
    ((label, value),) = re.findall(r"-l (\w+)=(\w+)", commands[1])
    assert "-l " not in commands[3]
    first = [one for one in objects(overlay) if one["metadata"].get("labels", {}).get(label) == value]
    assert {(one["kind"], one["metadata"]["name"].split("-")[0]) for one in first} == {
        ("ConfigMap", "spillway"), ("Job", "migrate"), ("NetworkPolicy", "spillway"),
    }  # fmt: skip
    assert [one["spec"]["podReplacementPolicy"] for one in of_kind(overlay, "Job")] == ["Failed"]
    job = pods(overlay)["migrate"]
    assert "serviceAccountName" not in job
    assert not any("persistentVolumeClaim" in volume for volume in job["volumes"])


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::7"])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_web_answers_probes_and_prometheus_by_the_address_of_its_pod(overlay, address, client, settings):
    app = container(pods(overlay)["web"])
    (config,) = of_kind(overlay, "ConfigMap")
    given = {entry["name"]: entry for entry in app["env"]}
    assert given["POD_IP"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert given["HOSTS"]["valueFrom"]["configMapKeyRef"] == {
        "name": config["metadata"]["name"],
        "key": "ALLOWED_HOSTS",
    }
    # In this order: Kubernetes knows only what stands before.
    assert [name for name in given if name in ("POD_IP", "HOSTS", "ALLOWED_HOSTS")] == [
        "POD_IP",
        "HOSTS",
        "ALLOWED_HOSTS",
    ]
    hosts = given["ALLOWED_HOSTS"]["value"].replace("$(POD_IP)", address)
    settings.ALLOWED_HOSTS = hosts.replace("$(HOSTS)", config["data"]["ALLOWED_HOSTS"]).split(",")
    port = app["ports"][0]["containerPort"]
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"  # as kubelet and Prometheus name it
    probes = [app[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert all("httpHeaders" not in probe and "host" not in probe for probe in probes)
    assert client.get("/healthz", headers={"host": place}).status_code == 200
    assert client.get("/healthz", headers={"host": "spillway.example"}).status_code == 200
    assert client.get("/healthz", headers={"host": "10.0.0.8:8000"}).status_code == 400


def test_prometheus_reads_each_pod_by_itself():
    written = re.findall(r"^    (.*)$", read(FOLDER / "README.md").split("## Prometheus")[1], re.MULTILINE)
    jobs = yaml.safe_load("\n".join(written))
    kept = {}
    for job in jobs:
        assert [discovery["role"] for discovery in job["kubernetes_sd_configs"]] == ["pod"]
        keep, drop, namespace = job["relabel_configs"]
        assert (keep["action"], keep["source_labels"]) == ("keep", ["__meta_kubernetes_pod_container_port_name"])
        # An evicted pod is listed until somebody deletes it.
        assert drop == {
            "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Failed|Succeeded", "action": "drop",
        }  # fmt: skip
        assert namespace == {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"}
        kept[job["job_name"]] = {
            name
            for name, pod in pods("large").items()
            if keep["regex"] in {port["name"] for port in container(pod).get("ports", [])}
        }
    assert kept == {"spillway-web": {"web"}, "spillway-workers": set(pods("large")) - {"web", "beat", "migrate"}}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_web_goes_on_until_nobody_is_led_to_it(overlay):
    pod = pods(overlay)["web"]
    sleep, seconds = container(pod)["lifecycle"]["preStop"]["exec"]["command"]
    assert (sleep, int(seconds) >= 5) == ("sleep", True)
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + 30, "gunicorn finishes requests for 30 s"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_beat_and_celery_live_while_they_get_on(overlay, tmp_path):
    """The probe reads a file, which is there and fresh, whatever the broker does."""
    for name in ("beat", "celery"):
        app = container(pods(overlay)[name])
        (file,) = (entry["value"] for entry in app["env"] if entry["name"] == "CELERY_ALIVE_FILE")
        assert any(file.startswith(f"{mount['mountPath']}/") for mount in app["volumeMounts"])
        command = app["livenessProbe"]["exec"]["command"]
        here = tmp_path / name

        def answer(command=command, file=file, here=here):
            text = [word.replace(file, str(here)) for word in command]
            return subprocess.run(text, capture_output=True, check=False).returncode

        assert answer() != 0
        here.touch()
        assert answer() == 0
        ago = time.time() - HANGS.total_seconds() - 120
        os.utime(here, (ago, ago))
        assert answer() != 0


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_node_can_be_drained_whatever_its_pods_do(overlay):
    """One pod alone, and one that is not ready: a budget that counts them would hold the node for ever."""
    budgets = {one["metadata"]["name"]: one["spec"] for one in of_kind(overlay, "PodDisruptionBudget")}
    scaled = {one["spec"]["scaleTargetRef"]["name"] for one in of_kind(overlay, "ScaledObject")}
    assert {"web"} | scaled <= budgets.keys()
    for name, budget in budgets.items():
        assert budget.pop("selector")["matchLabels"]["process"] == name
        assert name in pods(overlay)
        assert budget == {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}


def test_whatever_has_several_pods_is_spread_over_nodes():
    several = {one["spec"]["scaleTargetRef"]["name"] for one in of_kind("large", "ScaledObject")}
    workloads = list(of_kind("large", "Deployment", "StatefulSet"))
    several |= {one["metadata"]["name"] for one in workloads if one["spec"].get("replicas", 1) > 1}
    assert {"web", "replay", "throttler"} <= several
    spread = {name for name, pod in pods("large").items() if pod.get("topologySpreadConstraints")}
    assert spread == several


# -- what the Prometheus Operator and an ingress are given -------------------------------------------------------------
def test_the_operators_rules_are_the_rules_and_its_monitors_the_jobs():
    head = read(FOLDER / "operator" / "rules.yaml")
    (command,) = re.findall(r"^#   (\{ .+; \}) \| kubectl", head, re.MULTILINE)
    made = subprocess.run(command, shell=True, cwd=FOLDER / "operator", capture_output=True, text=True, check=True)  # noqa: S602
    rule = yaml.safe_load(made.stdout)
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(read(ROOT / "deploy" / "prometheus" / "alerts.yml"))

    monitors = list(yaml.safe_load_all(read(FOLDER / "operator" / "monitors.yaml")))
    asked = {}
    for monitor in monitors:
        (labels,), (endpoint,) = monitor["spec"]["selector"].values(), monitor["spec"]["podMetricsEndpoints"]
        ((label, value),) = labels.items()
        (job,) = (one["replacement"] for one in endpoint["relabelings"] if one["targetLabel"] == "job")
        asked[job] = {
            one["metadata"]["name"]
            for one in of_kind("large", "Deployment", "StatefulSet")
            if one["spec"]["template"]["metadata"]["labels"].get(label) == value
            and endpoint["port"]
            in {port["name"] for port in container(one["spec"]["template"]["spec"]).get("ports", [])}
        }
    assert asked == {"spillway-web": {"web"}, "spillway-workers": set(pods("large")) - {"web", "beat", "migrate"}}


def test_the_example_ingress_leads_to_all_but_what_asks_for_no_password():
    ingress = yaml.safe_load(read(FOLDER / "ingress.yaml"))
    kubernetes_validate.validate(ingress, VERSION, strict=True)
    (rule,) = ingress["spec"]["rules"]
    led = {path["path"] for path in rule["http"]["paths"]}
    for path in rule["http"]["paths"]:
        assert path["backend"]["service"] == {"name": "web", "port": {"name": "http"}}
    routes = {
        f"/{str(pattern.pattern).strip('^').split('/')[0]}" for pattern in every_route(get_resolver().url_patterns)
    }
    assert led == routes - {"/", "/metrics", "/healthz", "/readyz"} | {settings.STATIC_URL.rstrip("/")}


def every_route(patterns: list[Any]) -> Iterator[Any]:
    """The patterns that begin a path; an `include` without a prefix is its members."""
    for pattern in patterns:
        if hasattr(pattern, "url_patterns") and not str(pattern.pattern):
            yield from every_route(pattern.url_patterns)
        else:
            yield pattern
