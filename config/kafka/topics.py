"""Topics by their contract names: prefix, creation, and what of the broker's is not as the catalogue says."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from django.conf import settings

from config.kafka import client

MIN_INSYNC = "min.insync.replicas"


def topic_name(name: str) -> str:
    """The name on the broker: every topic and group carries `KAFKA_TOPIC_PREFIX`."""
    return f"{settings.KAFKA_TOPIC_PREFIX}{name}"


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the catalogue says; `remedy` is for a person, nothing here carries it out."""

    setting: str
    found: str
    wanted: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.setting} is {self.found}, should be {self.wanted}: {self.remedy}"


@dataclass(frozen=True)
class Copies:
    """On how many brokers of a cluster the records of a topic are: of its worst partition, each."""

    brokers: int
    replicas: int
    in_sync: int
    min_insync: int  # so many have a record before it is acknowledged

    def __str__(self) -> str:
        if self.replicas == 1:
            where = f"among {self.brokers} brokers" if self.brokers > 1 else "on the only broker"
            return f"1 replica {where}, {MIN_INSYNC} {self.min_insync}"
        return f"{self.replicas} replicas, {self.min_insync} of them have a write before it is acknowledged"

    def verdicts(self, topic: str) -> Iterator[str]:
        if self.brokers == 1:
            return
        if self.replicas == 1:
            yield f"{self}, its records go with one of them: {_reassign(topic, min(3, self.brokers))}"
            return
        if self.in_sync < self.replicas:
            yield f"in sync are {self.in_sync} of {self.replicas} replicas: is a broker away?"
        if self.min_insync >= self.replicas:
            more = f"{MIN_INSYNC} is as many as it has replicas, nothing is written while one is away"
            # With two replicas there is no number that survives both: a broker that is away, and one that is lost.
            third = self.replicas == 2 and self.brokers > 2
            lower = _reconfigure(topic, MIN_INSYNC, str(max(1, self.replicas - 1)))
            yield f"{more}: {_reassign(topic, 3) if third else lower}"
        elif self.min_insync == 1 and self.replicas > 2:
            lost = f"{MIN_INSYNC} is 1, what a single broker has acknowledged is lost with it"
            yield f"{lost}: {_reconfigure(topic, MIN_INSYNC, '2')}"


@dataclass(frozen=True)
class TopicState:
    """One topic of the catalogue as the broker has it."""

    name: str
    partitions: int  # 0: there is no such topic
    wanted: int
    differences: tuple[Difference, ...] = ()
    untold: str = ""  # why its configuration could not be compared
    copies: Copies | None = None  # None: nobody tells

    @property
    def verdicts(self) -> list[str]:
        """What is wrong with it, one line each."""
        if not self.partitions:
            return ["missing: run create_topics"]
        return [*map(str, self.differences), *(self.copies.verdicts(self.name) if self.copies else ())]


def describe_topics(admin: client.kafka.KafkaAdminClient) -> list[TopicState]:
    """The catalogue beside the broker's topics; raises KafkaError when no broker answers."""
    catalogue = {topic_name(name): entry for name, entry in settings.KAFKA_TOPICS.items()}
    brokers = len(admin.describe_cluster()["brokers"])
    configurations = _configurations(admin, catalogue, {MIN_INSYNC: ""})
    # Last: a broker that cannot be asked for configuration is told from one that is away.
    partitions = {topic["name"]: topic["partitions"] for topic in admin.describe_topics(list(catalogue))}
    counts = {name: len(numbers) for name, numbers in partitions.items()}
    states = []
    for name, entry in catalogue.items():
        current = configurations.get(name, {})
        copies = _copies(brokers, partitions.get(name), current)
        states.append(_state(name, entry, counts, current, copies))
    return states


def create_topics(names: Collection[str] = ()) -> list[tuple[TopicState, bool]]:
    """Create what is missing of these topics of the catalogue, or of all; each as it was before, and whether it was
    created. Existing ones never change."""
    chosen = {topic_name(name) for name in names or settings.KAFKA_TOPICS}
    with closing(client.new_admin()) as admin:
        # All are described: one may have its partitions of another that is not to be created now.
        states = [state for state in describe_topics(admin) if state.name in chosen]
        return [(state, not state.partitions and _create(admin, state)) for state in states]


def compare(name: str, entry: Mapping, current: Mapping[str, str]) -> Iterator[Difference]:
    """The settings of a topic, as the broker tells them, that are not as its entry in the catalogue says."""
    for setting, value in entry.get("config", {}).items():
        if setting in current and not _same(current[setting], value):
            yield Difference(setting, current[setting] or "empty", value, _reconfigure(name, setting, value))


def compare_partitions(name: str, entry: Mapping, counts: Mapping[str, int]) -> Iterator[Difference]:
    """Whether a topic has as many partitions as its entry says; `counts` are the broker's, by full name."""
    count, wanted = counts[name], _wanted(entry, counts)
    if count != wanted:
        origin = entry.get("partitions_of")
        reason = f"{wanted} as {topic_name(origin)}" if origin else str(wanted)
        yield Difference("partitions", str(count), reason, _repartition(name, count, wanted, origin or ""))


def _copies(brokers: int, partitions: Sequence[Mapping] | None, current: Mapping[str, str] | str) -> Copies | None:
    if not partitions or isinstance(current, str) or MIN_INSYNC not in current:
        return None
    replicas = min(len(partition["replica_nodes"]) for partition in partitions)
    in_sync = min(len(partition["isr_nodes"]) for partition in partitions)
    return Copies(max(brokers, replicas), replicas, in_sync, int(current[MIN_INSYNC]))


def _state(
    name: str, entry: Mapping, counts: Mapping[str, int], current: Mapping[str, str] | str, copies: Copies | None
) -> TopicState:
    wanted = _wanted(entry, counts)
    if not counts.get(name):
        return TopicState(name, 0, wanted)
    if isinstance(current, str):
        untold, current = current, {}
    else:
        missing = sorted(entry.get("config", {}).keys() - current.keys())
        untold = f"{', '.join(missing)} not told (right DescribeConfigs?)" if missing else ""
    differences = (*compare_partitions(name, entry, counts), *compare(name, entry, current))
    return TopicState(name, counts[name], wanted, differences, untold, copies)


def _wanted(entry: Mapping, counts: Mapping[str, int]) -> int:
    """A topic that has its partitions of another one follows what that really has."""
    origin = entry.get("partitions_of")
    return (origin and counts.get(topic_name(origin))) or entry["partitions"]


def _configurations(
    admin: client.kafka.KafkaAdminClient, catalogue: Mapping[str, Mapping], more: Mapping[str, str]
) -> dict[str, dict[str, str] | str]:
    """By topic what the broker tells of the settings in the catalogue and of some `more`, or why it tells nothing."""
    asked = [
        client.ConfigResource(client.ConfigResourceType.TOPIC, name, configs=wanted)
        for name, entry in catalogue.items()
        if (wanted := {**entry.get("config", {}), **more})
    ]
    if not asked:
        return {}
    try:
        topics = admin.describe_configs(asked, config_filter="all").get("topic", {})
    except client.KafkaError as error:  # the embedded broker hangs up
        return dict.fromkeys((resource.name for resource in asked), f"cannot be asked ({type(error).__name__})")
    return {name: {key: setting["value"] or "" for key, setting in values.items()} for name, values in topics.items()}


def _create(admin: client.kafka.KafkaAdminClient, state: TopicState) -> bool:
    (entry,) = (entry for name, entry in settings.KAFKA_TOPICS.items() if topic_name(name) == state.name)
    specification = {
        "num_partitions": state.wanted,
        "replication_factor": settings.KAFKA_REPLICATION_FACTOR,
        "configs": entry.get("config", {}),
    }
    try:
        admin.create_topics({state.name: specification})
    except client.TopicAlreadyExistsError:
        return False  # another process was faster
    except client.InvalidReplicationFactorError as error:  # whose text is the request and the answer
        raise client.InvalidReplicationFactorError(
            f"KAFKA_REPLICATION_FACTOR={settings.KAFKA_REPLICATION_FACTOR}: a topic can have 1 replica to as many as there "
            "are brokers; -1 is the brokers' default.replication.factor"
        ) from error
    return True


def _same(value: str, wanted: str) -> bool:
    """Numbers by their value, lists in any order."""
    try:
        return Decimal(value) == Decimal(wanted)
    except InvalidOperation:
        return sorted(value.replace(" ", "").split(",")) == sorted(wanted.replace(" ", "").split(","))


def _reassign(name: str, replicas: int) -> str:
    return f"give it {replicas} replicas ({_tool('kafka-reassign-partitions.sh')} --execute, docs/failures.md, Kafka with several brokers)"


def _repartition(name: str, count: int, wanted: int, origin: str) -> str:
    """Topics that others follow belong to a flow with state: they never grow by a command that can be pasted."""
    if name in (topic_name(entry.get("partitions_of", "")) for entry in settings.KAFKA_TOPICS.values()):
        return "correct KAFKA_TOPICS, or drain first (docs/scaling.md)"
    if count > wanted:
        other = f"give {topic_name(origin)} as many (docs/scaling.md)" if origin else "correct KAFKA_TOPICS"
        return f"a topic never loses partitions: {other}, or make this one anew"
    return f"{_tool('kafka-topics.sh')} --alter --topic {name} --partitions {wanted}"


def _reconfigure(name: str, setting: str, value: str) -> str:
    given = shlex.quote(f"{setting}=[{value}]" if "," in value else f"{setting}={value}")
    return f"{_tool('kafka-configs.sh')} --alter --entity-type topics --entity-name {name} --add-config {given}"


def _tool(name: str) -> str:
    secured = "" if settings.KAFKA_SECURITY_PROTOCOL == "PLAINTEXT" else " --command-config client.properties"
    return f"{name} --bootstrap-server {','.join(settings.KAFKA_BOOTSTRAP_SERVERS)}{secured}"
