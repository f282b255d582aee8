"""Points of loyal customers, in the ledger."""

import msgspec

from spillway_ext import Identifier, Movements, Quantity


class Earned(msgspec.Struct):
    earning_id: Identifier
    customer_id: Identifier
    points: Quantity


def earned(message: Earned) -> Movements:
    return Movements("POINTS_EARNED", message.earning_id, {message.customer_id: message.points})
