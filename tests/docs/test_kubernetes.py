"""deploy/kubernetes builds and is valid, runs everything there is, and gives no pod a right or a secret too many."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.conf import settings

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
                "cooldownPeriod": {"type": "integer"},
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
    known = {name for name, _default in variables()} | {"POD_NAME", "PROMETHEUS_MULTIPROC_DIR"}
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
        (metric,) = re.findall(r"spillway_\w+", one["spec"]["triggers"][0]["metadata"]["query"])
        assert metric in names


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nobody_reaches_a_pod_but_who_is_named(overlay):
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(overlay, "NetworkPolicy")}
    assert policies["spillway"]["podSelector"] == {}, "every pod of the namespace"
    assert set(policies["spillway"]["policyTypes"]) == {"Ingress", "Egress"}
    assert all(rule["from"] for policy in policies.values() for rule in policy["ingress"])
