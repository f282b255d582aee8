"""System checks of what the database makes of values: every character is stored, and both sides read the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ModelState
from django.db.models import Field

from config.database.dialects.vendors import is_pooled
from config.database.galera import on_galera
from config.database.tables import unfinished_squashes
from config.fields import IdentifierField, collation_for

# Of MySQL and MariaDB; their `utf8` has no room for half of the characters.
WHOLE = "utf8mb4"
CATALOGUE = """
    SELECT table_name, column_name, character_set_name, collation_name, column_type, is_nullable, extra
    FROM information_schema.columns WHERE table_schema = DATABASE() AND character_set_name IS NOT NULL
"""
# What config/environment/databases.py sets when it connects, and a pooler or an option in DATABASE_URL may undo.
# On MySQL and MariaDB: words of sql_mode that must and must not stand there.
NEEDED = {"DateStyle": "ISO", "IntervalStyle": "postgres", "bytea_output": "hex", "standard_conforming_strings": "on"}
STRICT = {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}
OTHER_SYNTAX = {"ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PAD_CHAR_TO_FULL_LENGTH", "PIPES_AS_CONCAT"}
ENGLISH = {"", "C", "POSIX", "en"}
FOREIGN_SEQUENCES = """
    SELECT table_name, column_name, column_type, column_default FROM information_schema.columns
    WHERE table_schema = DATABASE() AND column_default LIKE 'nextval(`%%'
    AND LOCATE(CAST(CONCAT('nextval(`', DATABASE(), '`.') AS BINARY), column_default) <> 1
"""
SEQUENCES = """
    SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'SEQUENCE'
"""


@register(Tags.database)
def values_are_read_as_written(
    app_configs: object, databases: Sequence[str] | None = None, **_: object
) -> list[CheckMessage]:
    """Settings of the session on which both sides must agree: times, quotes, and what becomes of a value too large."""
    return [message for alias in databases or () for message in _agreement(connections[alias])]


def _agreement(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    if connection.vendor == "sqlite":
        return
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SELECT @@SESSION.sql_mode")
            modes = set(cursor.fetchone()[0].split(","))
            wrong = sorted(modes & OTHER_SYNTAX) or ([] if modes & STRICT else [f"without {min(STRICT)}"])
            if wrong:
                yield Error(
                    f"The session's sql_mode is {', '.join(wrong)}: take sql_mode and init_command out of DATABASE_URL.",
                    id="spillway.E021",
                )
            return
        cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [[*NEEDED, "lc_messages"]])
        settings = dict(cursor.fetchall())
        cursor.execute("SELECT quote_ident(current_user)")
        (role,) = cursor.fetchone()
    for name, value in NEEDED.items():
        if settings[name].partition(",")[0] != value:
            yield Error(
                f"The session's {name} is {settings[name]}. Something between here and the server, such as a pooler, drops "
                f"the options of a session: ALTER ROLE {role} SET {name} = '{value}'.",
                id="spillway.E021",
            )
    if settings["lc_messages"].partition("_")[0].partition(".")[0] not in ENGLISH:
        yield Warning(
            f"The server's errors are in the language {settings['lc_messages']}: what they repeat of a row is taken out "
            f"of logs and letters only in English. As a superuser: ALTER ROLE {role} SET lc_messages = 'C'.",
            id="spillway.W017",
        )


@register(Tags.database)
def a_pooler_is_named(
    app_configs: object, databases: Sequence[str] | None = None, **_: object
) -> Iterator[CheckMessage]:
    """A pooler tells its client of another process than the one that answers."""
    for alias in databases or ():
        if connections[alias].vendor != "postgresql" or is_pooled(alias):
            continue
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (process,) = cursor.fetchone()
        if process != connections[alias].connection.info.backend_pid:
            yield Error(
                f"There is a pooler before the {alias} database, and its URL does not say so: what one session prepares would be "
                "executed by another. End the URL with ?disable_server_side_cursors=True.",
                id="spillway.E026",
            )


@register(Tags.database)
def text_is_whole(app_configs: object, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """One order with a character that the database cannot store would hold up all others."""
    looks = {"postgresql": _postgresql, "mysql": _mysql}
    return [
        message
        for alias in databases or ()
        if (look := looks.get(connections[alias].vendor))
        for message in look(connections[alias])
    ]


def _postgresql(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), current_setting('server_encoding'), pg_client_encoding()")
        name, encoding, spoken = cursor.fetchone()
    if encoding != "UTF8":
        yield Error(
            f"The database {name} has the encoding {encoding}, and text needs UTF8. No setting changes that: pg_dump it, "
            f"CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0 LOCALE 'C.UTF-8', and restore into the new one.",
            id="spillway.E017",
        )
    if spoken != "UTF8":
        yield Error(
            f"The session's client_encoding is {spoken}, not UTF8: take it out of DATABASE_URL, or of the pooler between "
            "here and the server.",
            id="spillway.E018",
        )


def _mysql(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DATABASE(), @@character_set_database")
        name, makes = cursor.fetchone()
        cursor.execute("SHOW SESSION VARIABLES WHERE variable_name IN ('character_set_client', "
                       "'character_set_connection', 'character_set_results')")  # fmt: skip
        spoken = [f"{variable} is {value}" for variable, value in cursor.fetchall() if value != WHOLE]
    if makes != WHOLE:
        yield Error(
            f"The database {name} makes tables in {makes}, and text needs {WHOLE}: "
            f"ALTER DATABASE {connection.ops.quote_name(name)} CHARACTER SET {WHOLE}.",
            id="spillway.E017",
        )
    if spoken:
        yield Error(
            f"The session's {', '.join(spoken)}, not {WHOLE}: take charset out of DATABASE_URL, or of the proxy between "
            "here and the server.",
            id="spillway.E018",
        )
    yield from _columns(connection)
    yield from _sequences(connection)


def _sequences(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    """A backup of MariaDB names the database of its sequences, and may have been restored under another name."""
    with connection.cursor() as cursor:
        cursor.execute(FOREIGN_SEQUENCES, [])
        for table, column, kind, default in cursor.fetchall():
            name = default.split("`")[3]
            yield Error(
                f"{table}.{column} takes its numbers from another database ({default}): ALTER TABLE {table} MODIFY "
                f"{column} {kind} NOT NULL DEFAULT (NEXT VALUE FOR {name}).",
                id="spillway.E022",
            )
    if on_galera(connection):
        yield from _steps(connection)


def _steps(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    """A database that has moved to Galera has sequences of which nodes do not know that others take from them, too."""
    with connection.cursor() as cursor:
        cursor.execute(SEQUENCES)
        for (name,) in cursor.fetchall():
            cursor.execute(f"SELECT increment, cache_size FROM {connection.ops.quote_name(name)}")  # noqa: S608
            if (row := cursor.fetchone())[0] and row[1]:
                yield Error(
                    f"The sequence {name} was made outside of Galera, where two nodes may take one number from it: "
                    f"ALTER SEQUENCE {name} INCREMENT BY 0.",
                    id="spillway.E025",
                )


class TextColumn(NamedTuple):
    """What the catalogue says of a column of text."""

    charset: str
    collation: str
    kind: str
    nullable: str
    extra: str


Pairs = list[tuple[Field, TextColumn]]


def _columns(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute(CATALOGUE)
        columns = {(table, name): TextColumn(*rest) for table, name, *rest in cursor.fetchall()}
    narrow: dict[str, Pairs] = defaultdict(list)
    loose: dict[str, Pairs] = defaultdict(list)
    for field in settled_fields(connection):
        table = field.model._meta.db_table
        column = columns.get((table, field.column))
        if column is None:
            continue
        if column.charset != WHOLE:
            narrow[table].append((field, column))
        elif isinstance(field, IdentifierField) and column.collation != collation_for(connection):
            loose[table].append((field, column))
    for table, pairs in narrow.items():
        held = ", ".join(sorted({column.charset for _, column in pairs}))
        yield Error(
            f"{table} holds text in {held} and needs {WHOLE}: {_mend(connection, table, pairs)}.", id="spillway.E019"
        )
    for table, pairs in loose.items():
        held = ", ".join(f"{field.column} as {column.collation}" for field, column in pairs)
        yield Error(
            f"{table} compares {held}, not as {collation_for(connection)}, so that keys would merge: "
            f"{_mend(connection, table, pairs)}.",
            id="spillway.E014",
        )


def _mend(connection: Any, table: str, pairs: Pairs) -> str:
    """The statement after which these columns are right; CONVERT TO would take the identifiers' collation away."""
    quote = connection.ops.quote_name
    with connection.schema_editor(collect_sql=True, atomic=False) as editor:
        changes = [f"MODIFY {quote(field.column)} {_definition(editor, field, column)}" for field, column in pairs]
    # Both ends of a foreign key have to change, one after the other.
    unguarded = any(field.is_relation or field.primary_key for field, _ in pairs)
    first = "SET foreign_key_checks = 0; " if unguarded else ""
    return f"{first}ALTER TABLE {quote(table)} DEFAULT CHARACTER SET {WHOLE}, {', '.join(changes)}"


def _definition(editor: BaseDatabaseSchemaEditor, field: Field, column: TextColumn) -> str:
    words = [column.kind, f"CHARACTER SET {WHOLE}"]
    if isinstance(field, IdentifierField):
        words.append(f"COLLATE {collation_for(editor.connection)}")
    if column.nullable == "NO":
        words.append("NOT NULL")
    if field.has_db_default():
        sql, params = editor.db_default_sql(field)
        words.append("DEFAULT " + sql % tuple(map(editor.quote_value, params)))
    return " ".join(words)


# -- How far the tables are --------------------------------------------------------------------------------
@register(Tags.database)
def squashed_migrations_are_whole(
    app_configs: object, databases: Sequence[str] | None = None, **_: object
) -> list[CheckMessage]:
    """Django runs it before `migrate`, which would go on beside the gap or end in a traceback."""
    return [
        Error(f"{sentence}.", id="spillway.E023")
        for alias in databases or ()
        for sentence in unfinished_squashes(connections[alias])
    ]


States = dict[tuple[str, str], ModelState]


def settled_fields(connection: BaseDatabaseWrapper) -> list[Field]:
    """The fields of all models whose columns no pending migration makes, changes or removes.

    Django runs system checks before `migrate`: a check that judged the others would refuse the very command that
    mends them, also after a `migrate` that was interrupted.
    """
    models = apps.get_models(include_auto_created=True)
    fields = [field for model in models for field in model._meta.local_concrete_fields]
    if unfinished_squashes(connection):
        return []  # which is an error of its own; the graph of migrations has a gap
    loader = MigrationLoader(connection)
    applied = [node for node in loader.graph.nodes if node in loader.applied_migrations]
    if len(applied) == len(loader.graph.nodes):
        return fields
    now, then = loader.project_state(applied).models, loader.project_state().models
    return [field for field in fields if _is_settled(field, now, then)]


def _is_settled(field: Field, now: States, then: States) -> bool:
    """`now`: as far as migrations are applied; `then`: after all of them."""
    owner: Any = field.model._meta.auto_created or field.model
    key = owner._meta.app_label, owner._meta.model_name
    if key not in then:
        return True  # of an app without migrations
    if key not in now or now[key].options.get("db_table") != then[key].options.get("db_table"):
        return False
    if field.model._meta.auto_created:
        return True
    before, after = now[key].fields.get(field.name), then[key].fields[field.name]
    return before is not None and before.deconstruct()[1:] == after.deconstruct()[1:]
