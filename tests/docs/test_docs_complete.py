"""The documents name everything that exists, and nothing that does not."""

import ast
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace

import pytest
from django.db import transaction
from prometheus_client import Counter, Gauge, Histogram

from config.telemetry import metrics
from notifications.mail.content import complete
from outbox.messages.models import OutboxMessage
from outbox.messages.publish import publish
from tests.bench.leg import PARTS
from tests.crash.__main__ import FLOWS
from tests.drills.__main__ import DRILLS
from tests.drills.prometheus import alerts_of, hurried
from tests.screenshots.__main__ import EVERY_LOOK, LIGHT
from tests.tree import ROOT, Module, code, files, parse, read

LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)|(?:src|srcset)=\"([^\"]+)\"")
FENCE = re.compile(r"^```.*?^```$|^    .*?$", re.DOTALL | re.MULTILINE)
PLACE = re.compile(r"`([\w/]+\.py):(\w+(?:\.\w+)?)`")
# Rendered by `make screenshots`, not by hand.
IMAGES = ROOT / "docs" / "images"
# What operators read; together they name every command.
OPERATORS = [
    "README.md", "docs/deploy.md", "docs/looking.md", "docs/letters.md", "docs/backup.md", "docs/failures.md",
    "docs/alerts.md", "docs/throttler-run.md", "docs/throttler-cassandra.md", "docs/replay-batches.md",
]  # fmt: skip


@cache
def page(name: str) -> str:
    return read(ROOT / name)


def pages():
    return [path for path in files() if path.suffix == ".md"]


def rows(name: str) -> dict[str, str]:
    """The rows of a page's tables by the code in their first cell."""
    found = (re.match(r"\| `([^`]+)` \|", line) for line in page(name).splitlines())
    return {match[1]: match.string for match in found if match}


# -- settings ----------------------------------------------------------------------------------------
def variables():
    """(name, default or None) of everything that the settings read from the environment."""
    found = {}
    sources = (ROOT / "config" / "settings.py", ROOT / "config" / "environment" / "web.py")
    for call in (node for source in sources for node in ast.walk(parse(source))):
        if not (isinstance(call, ast.Call) and ast.unparse(call.func).startswith("env.")):
            continue
        default = call.args[1] if len(call.args) > 1 else None
        plain = isinstance(default, ast.Constant) and not isinstance(default.value, bool)
        found[call.args[0].value] = default.value if plain else found.get(call.args[0].value)
    return sorted(found.items())


def test_settings_are_read_at_all():
    assert len(variables()) > 30


@pytest.mark.parametrize(("name", "default"), variables())
def test_every_variable_is_documented_with_its_default(name, default):
    row = rows("docs/settings.md")[name]
    if default not in (None, ""):
        assert f"{default}" in row.split("|")[2]


def test_no_variable_is_documented_that_is_not_read():
    assert set(rows("docs/settings.md")) == {name for name, _ in variables()}


# -- metrics -----------------------------------------------------------------------------------------
def catalogue():
    kinds = (Counter, Gauge, Histogram)
    return [found for found in vars(metrics).values() if isinstance(found, kinds)]


def exposed(metric) -> str:
    name = next(iter(metric.describe())).name
    return f"{name}_total" if isinstance(metric, Counter) else name


@pytest.mark.parametrize("metric", catalogue(), ids=exposed)
def test_every_metric_is_documented_with_its_labels(metric):
    kind = rows("docs/metrics.md")[exposed(metric)].split("|")[2]
    assert type(metric).__name__.lower() in kind
    assert re.findall(r"`(\w+)`", kind) == list(metric._labelnames)


def test_no_metric_is_documented_that_does_not_exist():
    assert set(rows("docs/metrics.md")) == {exposed(metric) for metric in catalogue()}


@pytest.mark.parametrize("name", [*OPERATORS, "docs/metrics.md", "docs/outbox.md", "deploy/prometheus/alerts.yml"])
def test_metrics_are_named_as_they_are_exposed(name):
    known = {exposed(metric) for metric in catalogue()}
    # As the client library names the parts of a histogram.
    known |= {
        f"{exposed(found)}_{part}"
        for found in catalogue()
        if isinstance(found, Histogram)
        for part in ("bucket", "sum", "count")
    }
    assert set(re.findall(r"\bspillway_(?!app\b|migrate\b|ext\b)[a-z_]+\b", page(name))) <= known


# -- commands ----------------------------------------------------------------------------------------
def commands():
    return sorted(module.path.stem for module in code() if module.is_command and module.path.stem != "__init__")


INTERNAL = {"demo_user"}  # `make run` calls it and it refuses to work elsewhere


@pytest.mark.parametrize("name", [name for name in commands() if name not in INTERNAL])
def test_every_command_is_mentioned(name):
    assert re.search(rf"\b{name}\b", "".join(page(name) for name in OPERATORS))


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_is_mentioned_that_does_not_exist(path):
    known = {
        *commands(),
        "relay_promises",  # of client/
        "makemigrations",
        "migrate",
        "check",
        "createsuperuser",
        "changepassword",
        "help",
        "shell",
        "axes_reset_username",
    }
    assert set(re.findall(r"manage\.py ([a-z_]+)", read(path))) <= known


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_make_knows_every_target_that_is_mentioned(path):
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make ([a-z-]+)", read(path), re.MULTILINE)) <= targets


# -- benchmarks and crash runs -----------------------------------------------------------------------
def test_every_part_of_the_bench_is_in_the_benchmarks_and_no_other():
    described = re.findall(r"--only ([a-z,]+)", page("docs/benchmarks.md"))
    assert set(",".join(described).split(",")) == set(PARTS)


def test_every_crash_run_is_in_the_benchmarks():
    named = set(re.findall(r"(?:`|--flow )([a-z-]+)", page("docs/benchmarks.md")))
    assert set(FLOWS) <= named


# -- links and places --------------------------------------------------------------------------------
def links(path):
    for match in LINK.finditer(FENCE.sub("", read(path))):
        target = match[1] or match[2]
        if not re.match(r"[a-z]+:", target):
            yield target


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    for link in links(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if target.parent == IMAGES:
            continue
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_blank_line_breaks_a_table(path):
    for table in re.findall(r"^ *\|.*(?:\n *\|.*)*", FENCE.sub("", read(path)), re.MULTILINE):
        assert re.match(r".*\n *\|[ :|-]+\|(\n|$)", table), table


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_line_of_prose_has_at_most_120_characters(path):
    prose = FENCE.sub("", read(path)).splitlines()
    assert [line for line in prose if len(line) > 120 and " " in line.strip() and line.lstrip()[0] != "|"] == []


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_page_has_its_place_on_the_site(path):
    """Decisions get theirs by themselves; `make docs` builds the site."""
    name = path.relative_to(ROOT).as_posix()
    assert name.startswith("docs/adr/") or f"      - {name}\n" in page("mkdocs.yml")


def anchors(path) -> set[str]:
    """The anchors that a heading gets where Markdown is shown."""
    headings = re.findall(r"^#+ (.+)$", read(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_shows_at_most_five_pictures():
    shown = {link for link in links(ROOT / "README.md") if "images/" in link}
    assert 0 < len(shown) <= 5


def test_every_picture_that_is_taken_is_shown_and_no_other():
    taken = {*EVERY_LOOK, *LIGHT, *(f"{name}-{look}" for name in EVERY_LOOK for look in ("dark", "narrow"))}
    assert {link.rpartition("/")[2] for path in pages() for link in links(path) if "images/" in link} == {
        f"{name}.png" for name in taken
    }


@pytest.mark.django_db
def test_the_readme_shows_how_an_application_publishes():
    example = re.search(r"```python\n(.*?)```", page("README.md"), re.DOTALL)[1]
    invoice = SimpleNamespace(pk=7, save=lambda: None)
    mail = complete({"to": "ada@example.com", "subject": "Invoice", "text": "Here."}, "7:issued", datetime.now(UTC))
    names = {"transaction": transaction, "publish": publish, "invoice": invoice, "mail": mail}
    exec(example, names)  # noqa: S102 (our own page)
    assert OutboxMessage.objects.get().channel == "email"


def places():
    return sorted({(path.name, *match) for path in pages() for match in PLACE.findall(read(path))})


@pytest.mark.parametrize(("_page", "file", "name"), places(), ids=lambda part: str(part))
def test_every_place_in_the_code_exists(_page, file, name):
    assert name in members(Module(ROOT / file))


def members(module) -> set[str]:
    """What a module defines at its top, and what its classes define at theirs."""
    found = set()
    for node in module.tree.body:
        found |= names(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in names(inner)}
    return found


def names(node) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = [*getattr(node, "targets", []), *filter(None, [getattr(node, "target", None)])]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_the_paths_are_long_enough_to_be_worth_checking():
    assert len([place for place in places() if place[0] == "paths.md"]) > 60


# -- deployment --------------------------------------------------------------------------------------
def alerts():
    return alerts_of(page("deploy/prometheus/alerts.yml"))


@pytest.mark.parametrize("name", alerts())
def test_every_alert_is_in_the_runbook_and_has_a_test(name):
    assert name.lower() in anchors(ROOT / "docs" / "alerts.md")
    assert f"alertname: {name}" in page("deploy/prometheus/alerts_test.yml")


def test_every_alert_links_to_its_own_heading():
    links = re.findall(
        r"runbook_url: https://spillway\.example/docs/alerts\.md#(\w+)", page("deploy/prometheus/alerts.yml")
    )
    assert links == [name.lower() for name in alerts()]


def test_every_alert_has_a_drill_and_the_runbook_names_none_that_is_gone():
    assert {alert for drill in DRILLS.values() for alert in drill.alerts} == set(alerts())
    named = re.findall(r"`([a-z]+-[a-z-]+)`|NAME=([a-z-]+)", page("docs/alerts.md").partition("## Drills\n")[2])
    assert {one or other for one, other in named} <= set(DRILLS)


def test_a_hurried_rule_waits_less_and_says_the_same():
    rules, timed = page("deploy/prometheus/alerts.yml"), r" for: \S+|\[\w+\]"
    before, after = (re.findall(timed, text) for text in (rules, hurried(rules, 10)))
    assert {pair for pair in zip(before, after, strict=True) if "5m" in pair[0]} == {
        (" for: 5m", " for: 30s"), ("[5m]", "[60s]"), (" for: 15m", " for: 90s"), ("[15m]", "[90s]"),
    }  # fmt: skip
    assert re.sub(timed, "", hurried(rules, 10)) == re.sub(timed, "", rules)


@pytest.mark.processes
def test_the_alert_rules_pass_their_own_tests():
    promtool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    tests = ROOT / "deploy" / "prometheus" / "alerts_test.yml"
    done = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_deployments_set_only_variables_that_are_read():
    known = {name for name, _ in variables()} | {"PROMETHEUS_MULTIPROC_DIR"}
    block = page("deploy/compose.production.yaml")
    given = set(re.findall(r"^ +([A-Z][A-Z_]+): ", block, re.MULTILINE))
    assert {name.removesuffix("_FILE") for name in given if not name.startswith(("POSTGRES_", "GF_"))} <= known
    units = [read(path) for path in files() if path.parent.name == "systemd"]
    given = set(re.findall(r"^(?:Environment=)?([A-Z][A-Z_]+)=", "\n".join(units), re.MULTILINE))
    assert {name.removesuffix("_FILE") for name in given} <= known
