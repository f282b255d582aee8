"""The dashboards: what a panel shows exists, is read as its kind has to be, and leads to a page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache

import pytest
from django.urls import resolve
from prometheus_client import Gauge, Histogram

from tests.docs.test_docs_complete import alerts, catalogue, exposed
from tests.tree import ROOT, read

GRAFANA = ROOT / "deploy" / "grafana"
OF_PROMETHEUS = {"job", "instance"}
# In a maximum, so that two processes that say the same are no more than one.
ONCE = re.compile(r"(?:(?:max|min)(?: by \([^)]*\))? ?\((?:delta\()?|absent\()$")
RISEN = re.compile(r"(?:rate|increase)\($")


@cache
def boards():
    return {path.stem: json.loads(read(path)) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}


def panels():
    return [(name, panel) for name, board in boards().items() for panel in board["panels"]]


def queries():
    """(dashboard: panel, expression) of every query, with a range where Grafana puts one."""
    found = [(f"{name}: {panel['title']}", target["expr"]) for name, panel in panels() for target in panel["targets"]]
    return [(where, expression.replace("$__rate_interval", "5m")) for where, expression in found]


@cache
def series():
    """The labels of each name that /metrics can show, and what kind of metric it is of."""
    known = {"up": (set(), Gauge)}
    for metric in catalogue():
        labels = set(metric._labelnames)
        if isinstance(metric, Histogram):
            known |= {f"{exposed(metric)}_{part}": (labels, Histogram) for part in ("sum", "count")}
            known[f"{exposed(metric)}_bucket"] = labels | {"le"}, Histogram
        else:
            known[exposed(metric)] = labels, type(metric)
    return known


def named(expression):
    """(name, what stands before it, its selector) of every series in an expression."""
    pattern = re.compile(r"\b(up|spillway_\w+)(?:\{([^}]*)\})?")
    return [(match[1], expression[: match.start()], match[2] or "") for match in pattern.finditer(expression)]


def test_there_is_a_dashboard_for_everything_that_is_watched():
    titles = {board["title"] for board in boards().values()}
    assert titles == {
        "Order events", "E-mail delivery", "Aggregator", "Ledger", "Throttler", "Dead letters", "Platform",
    }  # fmt: skip
    assert {name: board["uid"] for name, board in boards().items()} == {name: name for name in boards()}
    described = read(ROOT / "docs" / "metrics.md").split("## Dashboards")[1]
    assert all(title in described for title in titles)


@pytest.mark.parametrize(
    ("name", "panel"), panels(), ids=lambda value: value if isinstance(value, str) else value["title"]
)
def test_a_panel_says_what_it_shows_and_leads_to_a_page(name, panel):
    assert panel["title"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["description"].endswith(".")
    assert set(re.findall(r"\bSpillway[A-Z]\w+", panel["description"])) <= set(alerts())
    (link,) = panel["links"]
    prefix = "${admin:raw}/"
    assert link["url"].startswith(prefix)
    # What the admin does not know ends at a page of its own without a name.
    assert re.fullmatch(
        r"\w+_changelist|partitions", str(resolve(f"/admin/{link['url'].removeprefix(prefix)}").url_name)
    )
    assert panel["datasource"]["uid"] == "${datasource}"
    same = [other["title"] for other in boards()[name]["panels"]]
    assert same.count(panel["title"]) == 1


@pytest.mark.parametrize(("where", "expression"), queries(), ids=[where for where, _ in queries()])
def test_a_query_names_metrics_and_labels_that_exist(where, expression):
    used = named(expression)
    assert used
    for name, before, selector in used:
        labels, kind = series()[name]
        labels = labels | OF_PROMETHEUS
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", selector)) <= labels
        assert (ONCE if kind is Gauge and name != "up" else RISEN if name != "up" else re.compile("")).search(before)
    known = set().union(*(series()[name][0] for name, _, _ in used)) | OF_PROMETHEUS
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
    assert grouped <= known
    assert set(re.findall(r'label_replace\(vector\(0\), "(\w+)"', expression)) <= grouped


def test_a_legend_names_labels_that_its_query_keeps():
    for name, panel in panels():
        for target in panel["targets"]:
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = set(re.findall(r"by \(([^)]*)\)", target["expr"])[0].split(", ")) if wanted else set()
            assert wanted <= kept, (name, panel["title"])


def test_every_metric_is_on_a_dashboard():
    drawn = {name for _, expression in queries() for name, _, _ in named(expression)}
    assert {exposed(metric) for metric in catalogue()} <= {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in drawn
    } | drawn


def test_no_alert_adds_up_what_several_processes_say_alike():
    for name, before, _ in named(re.sub(r"^ *#.*$", "", read(ROOT / "deploy/prometheus/alerts.yml"), flags=re.M)):
        if name in series() and series()[name][1] is Gauge and name != "up":
            assert ONCE.search(before), before[-60:] + name


@pytest.mark.processes
def test_the_files_are_what_the_builder_builds(tmp_path):
    build = [sys.executable, GRAFANA / "build.py", "--out", tmp_path, "--admin", "https://a.example/admin/"]
    subprocess.run(build, check=True, capture_output=True)
    committed = {path.name: read(path) for path in (GRAFANA / "dashboards").iterdir()}
    here = {
        name: text.replace("http://127.0.0.1:8000/admin", "https://a.example/admin") for name, text in committed.items()
    }
    assert {path.name: read(path) for path in tmp_path.iterdir()} == here != committed


@pytest.mark.processes
def test_the_queries_are_prometheus_own_language(tmp_path):
    promtool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    rules = [{"record": f"query_{number}", "expr": expression} for number, (_, expression) in enumerate(queries())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
