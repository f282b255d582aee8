"""Extensions that do not fit, each by one thing."""

from spillway_ext import SpillwayApp

STREAM = {"CLASS": "acme.parcels.Scans", "TOPIC": "parcel-scans", "OUTPUT": "depot-digests"}


class Good(SpillwayApp):
    name, api = "wrong.good", "1.0"


class NoApi(SpillwayApp):
    name = "wrong.no_api"


class TooNew(SpillwayApp):
    name, api = "wrong.too_new", "1.7"


class Another(SpillwayApp):
    name, api = "wrong.another", "2.0"


class NoName(SpillwayApp):
    api = "1.0"


class NameTaken(SpillwayApp):
    name, api = "wrong.name_taken", "1.0"
    streams = {"transfer-requests": STREAM}


class ReadTwice(SpillwayApp):
    name, api = "wrong.read_twice", "1.0"
    streams = {"mine": {**STREAM, "TOPIC": "transfer-requests"}}


class StockToo(SpillwayApp):
    name, api = "wrong.stock_too", "1.0"
    streams = {"mine": {**STREAM, "TOPIC": "PAYMENT_SUCCESS"}}


class LabelTaken(SpillwayApp):
    name, api = "wrong.outbox", "1.0"


class NoPrefix(SpillwayApp):
    name, api, prefix = "wrong.no_prefix", "1.0", "ACME_"

    @classmethod
    def settings(cls, env):
        return {"DEBUG": True}


class NotAPrefix(SpillwayApp):
    name, api = "wrong.not_a_prefix", "1.0"

    @classmethod
    def settings(cls, env):
        return {"SECRET_KEY": "known"}


class SettingTaken(SpillwayApp):
    name, api, prefix = "wrong.setting_taken", "1.0", "KAFKA_"

    @classmethod
    def settings(cls, env):
        return {"KAFKA_TOPIC_PREFIX": "x"}


class Raises(SpillwayApp):
    name, api, prefix = "wrong.raises", "1.0", "ACME_"

    @classmethod
    def settings(cls, env):
        return {"ACME_RATE": 1 / 0}


class BadValue(SpillwayApp):
    name, api, prefix = "wrong.bad_value", "1.0", "ACME_"

    @classmethod
    def settings(cls, env):
        return {"ACME_RATE": env.integer("ACME_RATE", 1, least=1, most=9)}


class NoRight(SpillwayApp):
    name, api = "wrong.no_right", "1.0"
    roles = {"Support": ["everything"]}


class NoTopic(SpillwayApp):
    name, api = "wrong.no_topic", "1.0"
    streams = {"mine": {"CLASS": "acme.parcels.Scans", "OUTPUT": "depot-digests"}}


class OneFlow(SpillwayApp):
    name, api = "wrong.one_flow", "1.0"
    flows = "acme.flow.Depots"


class AList(SpillwayApp):
    name, api = "wrong.a_list", "1.0"
    movements = ["points-earned"]


class NoWord(SpillwayApp):
    name, api = "wrong.no_word", "1.0"
    movements = {"points-earned": {"EFFECT": "acme.points.earned", "WORDS": {"stok": "balance"}}}


class Broken(SpillwayApp):
    name, api = "acme", "1.0"
    movements = {"points-earned": "broken.earned"}
    channels = {"pigeon": "broken.Pigeon"}


class First(SpillwayApp):
    name, api = "wrong.first", "1.0"
    channels = {"pigeon": "acme.pigeon.Pigeon"}


class FirstRate(SpillwayApp):
    name, api, prefix = "wrong.first_rate", "1.0", "ACME_"

    @classmethod
    def settings(cls, env):
        return {"ACME_RATE": 1}


class SecondRate(FirstRate):
    name = "wrong.second_rate"


class Second(SpillwayApp):
    name, api = "wrong.second", "1.0"
    channels = {"pigeon": "acme.pigeon.Pigeon"}


class NotOne:
    pass
