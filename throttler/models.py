"""The tables of throttler, as Django looks for them."""

from throttler.customers.models import Customer as Customer
from throttler.lanes.models import CustomerPeriod as CustomerPeriod
from throttler.lanes.models import Lane as Lane
from throttler.lanes.models import LaneOwner as LaneOwner
from throttler.lanes.models import LanePartition as LanePartition
from throttler.lanes.models import OutputDivision as OutputDivision
from throttler.overflow.django import OverflowMessage as OverflowMessage
