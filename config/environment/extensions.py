"""SPILLWAY_APPS: installed packages that add to the registries of the settings, and replace nothing (docs/extensions.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions, version
from typing import Any

from django.apps import AppConfig, apps

from config.environment.env import BadSetting, Env

API = (
    "1.0"  # of spillway_ext: the first number changes when an extension may have to, the second when something is added
)
GROUP = "spillway.apps"  # of entry points
OURS = "Spillway"
PREFIX = re.compile(r"[A-Z][A-Z0-9]*_")
RIGHT = re.compile(r"view|\w+\.\w+")


class SpillwayApp(AppConfig):
    """What an installed package adds to Spillway.

    Its module is imported while the settings are read: it imports no models, and what it adds is named by dotted paths.
    """

    api = ""  # of spillway_ext that it was written for: "1.0"
    prefix = ""  # of its settings: "ACME_"
    streams: Mapping[str, Mapping[str, Any]] = {}  # as STREAMS
    movements: Mapping[str, str | Mapping[str, Any]] = {}  # as MOVEMENTS
    formats: Mapping[str, str] = {}  # FORMAT → a function that opens records, as FORMATS
    topics: Mapping[str, Mapping[str, Any]] = {}  # as KAFKA_TOPICS
    channels: Mapping[str, str] = {}  # channel of a message → its handler, as HANDLERS
    schedule: Mapping[str, Mapping[str, Any]] = {}  # as CELERY_BEAT_SCHEDULE
    flows: Sequence[str] = ()
    api_routers: Sequence[str] = ()
    partitions: Sequence[str] = ()
    sweeps: Sequence[str] = ()
    roles: Mapping[str, Sequence[str]] = {}  # role → rights: `acme.view_depot`, or `view` for every table
    urls = ""  # a module with `urlpatterns`, mounted under its label

    @classmethod
    def settings(cls, env: Env) -> Mapping[str, object]:
        """Its settings, read from the environment; each name begins with `prefix`. May raise BadSetting."""
        return {}


MAPPINGS = {
    "streams": "STREAMS", "movements": "MOVEMENTS", "topics": "KAFKA_TOPICS", "channels": "HANDLERS",
    "schedule": "CELERY_BEAT_SCHEDULE", "formats": "FORMATS",
}  # fmt: skip
LISTS = {"flows": "FLOWS", "api_routers": "API_ROUTERS", "partitions": "PARTITIONS", "sweeps": "SWEEPS"}
NEEDED = {"streams": ("CLASS", "TOPIC", "OUTPUT"), "movements": ("EFFECT",)}  # of an entry that is a mapping
WORDS = ("stock", "quantity", "stocktake", "reference")  # that an entry of `movements` may have of its own


def added_by(app: SpillwayApp) -> Iterator[tuple[str, list[str]]]:
    """What an app adds, by kind; kinds of which it adds nothing are left out."""
    for kind in (*MAPPINGS, *LISTS, "roles"):
        if names := list(getattr(app, kind)):
            yield kind, names
    if app.urls:
        yield "urls", [app.urls]


def extensions() -> list[SpillwayApp]:
    """The apps of SPILLWAY_APPS, in the order of INSTALLED_APPS."""
    return [app for app in apps.get_app_configs() if isinstance(app, SpillwayApp)]


@cache
def release_of(app: SpillwayApp) -> str:
    """`acme-spillway 1.0.0`, the distribution that its package comes from; the package where none says it."""
    names = packages_distributions().get(app.name.partition(".")[0], ())
    return f"{names[0]} {version(names[0])}" if names else app.name


# -- Loading them --------------------------------------------------------------------------------------------
def load(names: Sequence[str]) -> list[type[SpillwayApp]]:
    """The apps of these names, each an entry point or a dotted path. BadSetting says which does not fit, and why."""
    known = {entry.name: entry.value.replace(":", ".") for entry in entry_points(group=GROUP)}
    classes = [_app(name, known.get(name, name), known) for name in names]
    for position, app in enumerate(classes):
        if app in classes[:position]:
            raise _bad(names[position], f"is named twice: {app.__module__}.{app.__qualname__}")
    return classes


def _app(name: str, path: str, known: Mapping[str, str]) -> type[SpillwayApp]:
    module, _, attribute = path.rpartition(".")
    if not module:
        raise _bad(name, f"is no entry point of {GROUP} (installed: {', '.join(known) or 'none'}) and no dotted path")
    try:
        app = getattr(import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 (whatever the module does while it is imported)
        text = " ".join(str(error).split())
        raise _bad(name, f"{path} cannot be imported: {type(error).__name__}: {text}") from None
    if not (isinstance(app, type) and issubclass(app, SpillwayApp) and app is not SpillwayApp):
        raise _bad(name, f"{path} is no class of spillway_ext.SpillwayApp")
    if not getattr(app, "name", ""):
        raise _bad(name, f"{path} has no `name`, the package that it configures")
    if not re.fullmatch(r"\d+\.\d+", app.api):
        raise _bad(name, f'{path} has no `api`, such as "{API}"')
    (major, minor), (ours, newest) = (map(int, release.split(".")) for release in (app.api, API))
    if major != ours or minor > newest:
        raise _bad(name, f"{path} was written for spillway_ext {app.api}; this Spillway has {API}")
    return app


def _bad(name: str, why: str) -> BadSetting:
    return BadSetting(f"SPILLWAY_APPS: {name} {why}")


# -- Adding what they bring ----------------------------------------------------------------------------------
def extend(settings: MutableMapping[str, Any], classes: Sequence[type[SpillwayApp]], env: Env) -> None:
    """Add what these apps bring to the settings. BadSetting names both sides of a clash; nothing is replaced."""
    labels = {path.rpartition(".")[2]: OURS for path in settings["INSTALLED_APPS"]}
    readers = _readers(settings)
    owners: dict[tuple[str, str], str] = {}
    settings["ADDED_APPS"] += map(_label, classes)
    for app in classes:
        _claim(labels, _label(app), app, "the app label")
        if misfit := next(_misfits(app), ""):
            raise BadSetting(f"SPILLWAY_APPS: {app.name}: {misfit}")
        for kind, setting in MAPPINGS.items():
            for name, value in getattr(app, kind).items():
                if name in settings[setting]:
                    raise _clash(app, owners.get((kind, name), OURS), f"{name!r} to {setting}")
                settings[setting][name], owners[kind, name] = value, app.name
        for kind, setting in LISTS.items():
            settings[setting] += [path for path in getattr(app, kind) if path not in settings[setting]]
        for topic in (*(stream["TOPIC"] for stream in app.streams.values()), *app.movements):
            _claim(readers, topic, app, "a reader of the topic")
        for role, rights in app.roles.items():
            if wrong := [right for right in rights if not RIGHT.fullmatch(right)]:
                raise BadSetting(
                    f"SPILLWAY_APPS: {app.name}: role {role!r}: {wrong[0]!r} is neither view nor app.right"
                )
            settings["ADDED_ROLES"].setdefault(role, []).extend(rights)
        _settings(settings, app, env, owners)
    # Before those that come with Django: the last app with tables is the sign that all rights are there.
    place = settings["INSTALLED_APPS"].index("axes")
    settings["INSTALLED_APPS"][place:place] = [f"{app.__module__}.{app.__qualname__}" for app in classes]


def _misfits(app: type[SpillwayApp]) -> Iterator[str]:
    """What of its attributes could not be added, or would be without effect."""
    for kind in (*MAPPINGS, *LISTS, "roles"):
        value = getattr(app, kind)
        if isinstance(value, str) or not isinstance(value, Sequence if kind in LISTS else Mapping):
            yield f"`{kind}` is a {type(value).__name__}, not a {'list' if kind in LISTS else 'mapping'}"
            return
    for kind, needed in NEEDED.items():
        for name, entry in getattr(app, kind).items():
            options = {"EFFECT": entry} if isinstance(entry, str) and kind == "movements" else entry
            yield from (f"{kind}[{name!r}] has no {option}" for option in needed if option not in options)
            strange = sorted(set(options.get("WORDS", ())) - set(WORDS))
            yield from (f"{kind}[{name!r}]: WORDS: {word!r} is none of {', '.join(WORDS)}" for word in strange)


def _label(app: type[SpillwayApp]) -> str:
    return getattr(app, "label", "") or app.name.rpartition(".")[2]


def _readers(settings: Mapping[str, Any]) -> dict[str, str]:
    """Who reads each topic: a position belongs to a group, a topic and a partition."""
    streams = [stream["TOPIC"] for stream in settings["STREAMS"].values()]
    own = [*streams, *settings["MOVEMENTS"], *settings["MESSAGES_IN"], settings["OUTBOX_CDC_TOPIC"], "notifications-in"]
    return dict.fromkeys(own, OURS)


def _claim(taken: dict[str, str], name: str, app: type[SpillwayApp], what: str) -> None:
    if name in taken:
        raise _clash(app, taken[name], f"{what} {name!r}")
    taken[name] = app.name


def _clash(app: type[SpillwayApp], owner: str, what: str) -> BadSetting:
    return BadSetting(f"SPILLWAY_APPS: {app.name} and {owner} both add {what}")


def _settings(
    settings: MutableMapping[str, Any], app: type[SpillwayApp], env: Env, owners: dict[tuple[str, str], str]
) -> None:
    try:
        added = app.settings(env)
    except BadSetting:
        raise
    except Exception as error:  # noqa: BLE001 (it is somebody else's code)
        raise BadSetting(f"SPILLWAY_APPS: {app.name}: settings(): {type(error).__name__}: {error}") from None
    if added and not PREFIX.fullmatch(app.prefix):
        raise BadSetting(
            f'SPILLWAY_APPS: {app.name}: its settings need a `prefix` such as "ACME_"; it says {app.prefix!r}'
        )
    for name, value in added.items():
        if not name.startswith(app.prefix):
            raise BadSetting(f"SPILLWAY_APPS: {app.name}: its setting {name} does not begin with {app.prefix}")
        if name in settings:
            raise _clash(app, owners.get(("settings", name), OURS), f"the setting {name}")
        settings[name], owners["settings", name] = value, app.name
