"""The table of messages over the rate: rows are inserted and read, never updated, and leave with their day."""

from __future__ import annotations

from django.db import models

from config.fields import IdentifierField


class OverflowMessage(models.Model):
    """A message that waits, or waited: what is left of a lane says its watermark, not its rows.

    The day stands last in the key: a lane is read across its days in the order of its offsets.
    """

    pk = models.CompositePrimaryKey("partition", "customer_id", "topic_id", "offset", "day")
    partition = models.IntegerField()
    customer_id = IdentifierField()
    topic_id = IdentifierField(max_length=36)
    offset = models.BigIntegerField()
    day = models.DateField()
    notification_id = IdentifierField(help_text="As the message says.")
    created_at = models.DateTimeField(help_text="The earlier of the message's own time and the record's.")
    expires_at = models.DateTimeField(null=True, help_text="Empty: its customer's TTL when it is judged.")
    headers = models.BinaryField(help_text="JSON of [[name, base64 value], …], or nothing.")
    payload = models.BinaryField(help_text="The record's value, byte for byte.")
    notification_hash = models.SmallIntegerField(
        null=True, help_text="One of 4,096, of the notification id: people search by it."
    )

    class Meta:
        # Few hashes, each in the order of offsets: rows go to the ends of 4,096 runs, which stay in memory however
        # large the table is, and a search passes one row in 4,096.
        indexes = [models.Index(fields=["notification_hash", "offset"], name="overflow_notification")]

    def __str__(self) -> str:
        return f"{self.customer_id} {self.partition}@{self.offset}"
