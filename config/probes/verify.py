"""`verify`: the invariants of all flows, as data and as lines for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from config.flows import Check, Flow, flows


def prove(flow: str | None = None, *, payloads: bool = True, kafka: bool = False) -> dict[str, object]:
    """`{"ok": bool, "checks": [{"name", "ok", "expected", "actual", "rows"}]}`; LookupError for an unknown flow."""
    chosen = [each for each in flows() if flow in (None, each.name)]
    if not chosen:
        raise LookupError(f"--flow {flow}: not one of {', '.join(each.name for each in flows())}")
    checks = [_as_data(check) for each in chosen for check in _checks(each, payloads, kafka)]
    return {"ok": all(check["ok"] for check in checks), "checks": checks}


def _checks(flow: Flow, payloads: bool, kafka: bool) -> Iterator[Check]:
    yield from flow.verify()
    if payloads:
        yield from flow.verify_payloads()
    if kafka:
        yield from flow.verify_kafka()


def _as_data(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "ok": check.ok,
        "expected": check.expected,
        "actual": check.actual,
        "rows": list(check.rows),
    }


def render(proof: dict[str, Any], *, as_json: bool) -> str:
    """One JSON object, or one line a check with the offending rows under it."""
    if as_json:
        return json.dumps(proof, default=str)
    lines = []
    for check in proof["checks"]:
        figures = "" if check["expected"] is None else f"  {check['expected']} = {check['actual']}"
        if not check["ok"] and check["expected"] is not None:
            figures = f"  expected {check['expected']}, found {check['actual']}"
        lines.append(f"{'ok  ' if check['ok'] else 'FAIL'}  {check['name']}{figures}")
        lines += [f"        {row}" for row in check["rows"]]
    lines.append("Everything adds up." if proof["ok"] else "Something is missing, there twice or changed: see FAIL.")
    return "\n".join(lines)
