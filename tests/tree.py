"""The repository's own files, as the tests about code and documentation read them."""

import ast
import gc
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("config", "outbox", "buffer", "throttler", "notifications", "spillway_ext")
LEFT_OUT = {".git", ".venv", ".services", "var", "build", "staticfiles", "__pycache__", "node_modules"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> list[Path]:
    """Everything under version control or about to be; without git, everything that is not made by a tool."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        every = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in every if not LEFT_OUT & set(path.parts)]
    return sorted(path for path in {ROOT / name for name in names if name} if path.is_file())


@dataclass(frozen=True)
class Module:
    """One Python file: its place, its text and its syntax tree."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def dotted(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def package(self) -> str:
        return self.path.relative_to(ROOT).parts[0]

    @property
    def folder(self) -> str:
        return str(self.path.relative_to(ROOT).parent)

    @property
    def is_migration(self) -> bool:
        return "migrations" in self.path.parts

    @property
    def is_command(self) -> bool:
        return self.path.parts[-3:-1] == ("management", "commands")

    @property
    def text(self) -> str:
        return read(self.path)

    @property
    def tree(self) -> ast.Module:
        return parse(self.path)

    def imports(self) -> Iterator[str]:
        """Full names of imported modules, those inside functions as well."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        for node in import_statements(self.path):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            else:
                above = ".".join(parts[: -node.level]) if node.level else ""
                yield ".".join(part for part in (above, node.module) if part)

    def functions(self) -> Iterator[Function]:
        return (node for node in statements(self.tree) if isinstance(node, Function))

    def texts(self) -> Iterator[str]:
        """String constants, those in f-strings as well, without docstrings."""
        documented = (ast.Module, ast.ClassDef, *Function.__args__)
        said = {ast.get_docstring(node, clean=False) for node in ast.walk(self.tree) if isinstance(node, documented)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in said:
                yield node.value


@cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parse(path: Path) -> ast.Module:
    """Nobody looks for garbage among its nodes, now or later: with a million of them that takes thrice as long."""
    looked = gc.isenabled()
    gc.disable()
    tree = ast.parse(read(path))
    gc.freeze()
    if looked:
        gc.enable()
    return tree


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Those inside functions and branches as well, without the expressions: a quarter of the nodes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            yield from statements(node)


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in statements(parse(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def modules() -> list[Module]:
    """Every Python file but migrations, which a command writes."""
    found = [Module(path) for path in files() if path.suffix == ".py"]
    return [module for module in found if not module.is_migration]


@cache
def code() -> list[Module]:
    """The modules that run in production."""
    return [module for module in modules() if module.package in PACKAGES]


@cache
def arrows() -> dict[str, frozenset[str]]:
    """Which files of production code each file imports, inside functions and for types as well."""
    homes = {module.dotted: module.name for module in code()}
    return {module.name: frozenset(_imported(module, homes)) for module in code()}


def _imported(module: Module, homes: dict[str, str]) -> Iterator[str]:
    for node in import_statements(module.path):
        if isinstance(node, ast.Import):
            yield from (homes[alias.name] for alias in node.names if alias.name in homes)
        elif node.module in homes:
            for alias in node.names:
                yield homes.get(f"{node.module}.{alias.name}", homes[node.module])


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """One circle in the graph, its first node again at the end; empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
