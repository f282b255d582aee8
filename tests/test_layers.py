"""Who may import whom, where special things live, and how long anything may be."""

import re
from pathlib import Path

import pytest

from tests.tree import PACKAGES, Module, arrows, code, files, modules, read

# What each layer may import beside itself: config <- outbox <- {buffer, throttler, notifications}.
BELOW = {
    "config": set(),
    "outbox": {"config"},
    "buffer": {"config", "outbox"},
    "throttler": {"config", "outbox"},
    "notifications": {"config", "outbox"},
    "spillway_ext": {"config", "outbox", "buffer", "throttler", "notifications"},
}
ONLY_IN = {
    "kafka": "config/kafka/",
    "confluent_kafka": "config/demo/embedded_kafka.py",
    "prometheus_client": ("config/telemetry/metrics.py", "config/probes/endpoints.py"),
    "environ": ("config/environment/env.py", "config/environment/databases.py"),
}
LONGEST_FUNCTION, LONGEST_FILE, LONGEST_COMMAND = 60, 450, 40

# What must not be written down: this machine's directories, and hosts that packages or images come from.
PLACES = {
    "path": r"/(?<![\w.*-]/)(?:work|root|home|Users|farm)/\w",
    "registry": r"\b(?:docker|ghcr|quay|gcr|lscr)\.io|pypi\.org|pythonhosted|maven(?:\.apache)?\.org"
    r"|deb\.debian|archive\.ubuntu|registry\.\w+\.(?:org|com|io)|--(?:extra-)?index-url[ =]",
}


def test_imports_point_down():
    wrong = [
        f"{module.name} imports {name}"
        for module in code()
        for name in module.imports()
        if name.split(".")[0] in set(PACKAGES) - {module.package} - BELOW[module.package]
    ]
    assert not wrong


def test_production_code_imports_no_test():
    assert not [module.name for module in code() for name in module.imports() if name.split(".")[0] == "tests"]


def test_the_client_and_spillway_know_nothing_of_each_other():
    """It is installed without ours, beside packages that may be called like ours."""
    client = [module for module in modules() if module.folder.startswith("client/")]
    assert len(client) > 5
    foreign = {name for module in client for name in module.imports() if name.split(".")[0] in {*PACKAGES, "tests"}}
    ours = {name for module in code() for name in module.imports() if name.split(".")[0] == "spillway_client"}
    assert not foreign | ours


def test_config_owns_no_table():
    names = {module.name for module in modules() if module.package == "config"}
    assert "config/models.py" not in names
    assert not [path for path in files() if "config/migrations" in path.as_posix()]


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_has_one_home(library):
    strangers = [
        module.name
        for module in code()
        if library in {name.split(".")[0] for name in module.imports()} and not module.name.startswith(ONLY_IN[library])
    ]
    assert not strangers


def test_only_django_loads_the_backend_of_a_database_whose_driver_may_be_missing():
    backends = {name for name in arrows() if re.fullmatch(r"config/database/\w+/base\.py", name)}
    backends -= {"config/database/dialects/base.py"}
    assert backends == {f"config/database/{name}/base.py" for name in ("mysql", "postgresql")}
    assert [name for name, used in arrows().items() if backends & used] == []


def test_partition_ddl_lives_in_one_place():
    wrong = [
        f"{module.name}: {text.strip()[:80]}"
        for module in code()
        if "PARTITION" in module.text and not module.name.startswith("config/partitions/")
        for text in module.texts()
        if re.search(r"(?<!PER )\bPARTITION(?:ING)?\b", text)  # Cassandra's PER PARTITION LIMIT is none
    ]
    assert not wrong


def test_functions_are_short():
    long = [
        f"{module.name}:{function.lineno} {function.name} has {size(function)} lines"
        for module in modules()
        for function in module.functions()
        if size(function) > LONGEST_FUNCTION
    ]
    assert not long


def test_files_are_short():
    assert not [f"{module.name} has {lines(module)} lines" for module in modules() if lines(module) > LONGEST_FILE]


def test_commands_hold_no_logic():
    commands = [module for module in code() if module.is_command]
    assert commands
    assert not [f"{module.name} has {lines(module)} lines" for module in commands if lines(module) > LONGEST_COMMAND]


def test_every_module_says_what_it_is():
    assert not [module.name for module in modules() if module.text.strip() and not opens_with_a_line(module)]


def opens_with_a_line(module: Module) -> bool:
    """A docstring whose first line stands alone."""
    first, *rest = (doc(module) or "").split("\n")
    return bool(first.strip()) and not (rest and rest[0].strip())


def doc(module: Module) -> str | None:
    first = module.tree.body[0] if module.tree.body else None
    value = getattr(getattr(first, "value", None), "value", None)
    return value if isinstance(value, str) else None


@pytest.mark.parametrize("kind", PLACES)
def test_no_file_names_a_place(kind):
    found = [
        f"{path.name}: {line[:100]}"
        for path in files()
        if is_text(path) and path != Path(__file__)
        for line in re.findall(rf"(?:{PLACES[kind]}).*", read(path))
    ]
    assert not found


def is_text(path: Path) -> bool:
    return b"\0" not in path.read_bytes()[:8000] and path.suffix not in (".png", ".ico", ".gz")


def size(function) -> int:
    return function.end_lineno - function.lineno + 1


def lines(module: Module) -> int:
    return len(module.text.splitlines())
