"""What an extension may import: these names keep their meaning while the first number of `API` stays (docs/extensions.md).

Each is loaded when it is first asked for: `SpillwayApp` while the settings are read, all others need the settings.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from config.environment.extensions import API, SpillwayApp
    from spillway_ext.exports import *

BEFORE_SETTINGS = ("API", "SpillwayApp")


def __getattr__(name: str) -> Any:
    if find_spec(f"{__name__}.{name}"):
        raise AttributeError(name)  # a module: the import goes on to look for it
    home = "config.environment.extensions" if name in BEFORE_SETTINGS else "spillway_ext.exports"
    try:
        return getattr(import_module(home), name)
    except AttributeError:
        raise AttributeError(f"spillway_ext has no {name!r}") from None
