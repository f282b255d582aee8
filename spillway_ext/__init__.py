"""What an extension may import: these names keep their meaning while the first number of `API` stays (docs/extensions.md).

Most of them need the settings, for which the module of a SpillwayApp is read: they are loaded when one is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from config.environment.extensions import API, SpillwayApp

if TYPE_CHECKING:
    from spillway_ext.exports import *


def __getattr__(name: str) -> Any:
    try:
        return getattr(import_module("spillway_ext.exports"), name)
    except AttributeError:
        raise AttributeError(f"spillway_ext has no {name!r}") from None
