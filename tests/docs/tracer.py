"""A plugin of pytest, `-p tests.docs.tracer`: writes to WALKS what each test entered, in order, and on which thread."""

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACE = re.compile(r"`([\w/]+\.py):(\w+(?:\.\w+)?)`")
entered: dict[str, list[tuple[str, int]]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    named = {place for pair in PLACE.findall((ROOT / "docs" / "paths.md").read_text()) for place in [":".join(pair)]}
    places: dict[CodeType, str] = {}
    calls: list[tuple[str, int]] = []

    def note(frame, event, _argument):
        if event == "call":
            code = frame.f_code
            if id(code) not in places:
                places[id(code)] = place_of(code, named)
            if places[id(code)]:
                calls.append((places[id(code)], threading.get_ident()))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        entered[pyfuncitem.nodeid] = [*calls[:1], *(later for earlier, later in pairwise(calls) if later != earlier)]


def place_of(code: CodeType, named: set[str]) -> str:
    """A method that is not named stands for its class, where that is."""
    file = code.co_filename.removeprefix(f"{ROOT}/")
    names = (code.co_qualname, code.co_qualname.partition(".")[0])
    return next((place for name in names if (place := f"{file}:{name}") in named), "")


def pytest_sessionfinish() -> None:
    Path(os.environ["WALKS"]).write_text(json.dumps(entered))
