"""What the production code logs, read from its syntax trees: each event with its levels, fields and places."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from tests.tree import Function, Module, code

LEVELS = {"info": "info", "warning": "warning", "error": "error", "exception": "error"}


@dataclass
class Event:
    """All lines of one name."""

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    committed: bool = True  # each line waits for the commit


@cache
def events() -> dict[str, Event]:
    """Every event by its name."""
    found: dict[str, Event] = {}
    for module in code():
        for scope, call in _calls(module) if "log" in module.text else ():
            level = _level(call)
            for name in _names(call.args[0]):
                event = found.setdefault(name, Event())
                event.levels.add(level)
                event.fields |= fields_of(call, scope)
                event.modules.add(module.name)
                event.committed &= ast.unparse(call.func) == "log_committed"
    return found


def _calls(module: Module) -> Iterator[tuple[Function, ast.Call]]:
    """Each call that logs an event, with the function around it."""
    for scope in module.functions():
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and node.args and _level(node) and scope.name != "log_committed":
                yield scope, node


def _level(call: ast.Call) -> str:
    """Empty for a call that logs nothing."""
    match call.func:
        case ast.Name("log_committed"):
            return ast.literal_eval(call.args[1]) if len(call.args) > 1 else "info"
        case ast.Attribute(ast.Name("log"), level):
            return LEVELS.get(level, "")
    return ""


def _names(node: ast.expr) -> list[str]:
    """The event's name, or both that a condition chooses from; an AssertionError for any other expression."""
    if isinstance(node, ast.IfExp):
        return [*_names(node.body), *_names(node.orelse)]
    assert isinstance(node, ast.Constant), f"the name of an event is a literal: {ast.unparse(node)}"
    return [node.value]


def fields_of(call: ast.Call, scope: Function) -> set[str]:
    """The names of a line's fields; an AssertionError where they cannot be read from the code."""
    found: set[str] = set()
    for keyword in call.keywords:
        found |= _starred(keyword.value, scope) if keyword.arg in (None, "ids") else {keyword.arg}
    return found - {"exc_info"}


def _starred(node: ast.expr, scope: Function) -> set[str]:
    if isinstance(node, ast.BinOp):
        return _starred(node.left, scope) | _starred(node.right, scope)
    if isinstance(node, ast.Dict):
        inner = [_starred(value, scope) for key, value in zip(node.keys, node.values, strict=True) if key is None]
        return {key.value for key in node.keys if isinstance(key, ast.Constant)}.union(*inner)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "RowIds":
        return {"more", *(keyword.arg or "" for keyword in node.keywords)}
    if isinstance(node, ast.IfExp):
        return _starred(node.body, scope) | _starred(node.orelse, scope)
    if ast.unparse(node) in ("claim.ids", "claimed.ids"):
        return fields_of_messages()
    if isinstance(node, ast.Call):
        return _returned_by(ast.unparse(node.func))
    if isinstance(node, ast.Name):
        values = [
            each.value for each in ast.walk(scope)
            if isinstance(each, ast.Assign) and node.id in {ast.unparse(target) for target in each.targets}
        ]  # fmt: skip
        assert values, f"{scope.name}: what is in **{node.id}?"
        return set().union(*(_starred(value, scope) for value in values))
    raise AssertionError(f"{scope.name}: what is in **{ast.unparse(node)}?")


@cache
def _returned_by(name: str) -> set[str]:
    """The fields of the ids that functions of this name return."""
    helpers = [each for module in code() for each in module.functions() if each.name == name and _gives_ids(each)]
    assert helpers, f"what does {name} return?"
    returns = [(node, each) for each in helpers for node in ast.walk(each) if isinstance(node, ast.Return)]
    return set().union(*(_starred(node.value, each) for node, each in returns if node.value))


def _gives_ids(function: Function) -> bool:
    return function.returns is not None and ast.unparse(function.returns) == "RowIds"


def fields_of_messages() -> set[str]:
    """What `ids_of` says of messages."""
    return _returned_by("ids_of")
