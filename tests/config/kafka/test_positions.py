"""Where a partition starts, and when it must not."""

import pytest

from config.kafka.positions import Log, Mark, Start, Stopped, gap_end, of_one_topic, start_of


def log(begin=0, end=100, committed=None, topic_id="a"):
    return Log(topic_id, begin, end, committed)


@pytest.mark.parametrize(
    ("mark", "seen", "offset"),
    [
        (None, log(), 0),
        (None, log(begin=7), 7),
        (None, log(committed=50), 0),
        (Mark("a", 40), log(committed=50), 40),  # the database was restored: read the gap again
        (Mark("a", 60), log(committed=50), 50),  # it committed, the offset did not: harmless
        (Mark("a", 60), log(), 60),
        (Mark("a", 100), log(), 100),
        (Mark("", 60), log(topic_id="b"), 60),
        (Mark("a", 60), log(topic_id=""), 60),
        (Mark("a", 60), log(begin=55, committed=50), 60),
    ],
)
def test_the_smaller_of_offset_and_watermark(mark, seen, offset):
    start = start_of(mark, seen)
    assert isinstance(start, Start)
    assert start.offset == offset


@pytest.mark.parametrize(
    ("mark", "seen", "word"),
    [
        (Mark("a", 60), log(topic_id="b"), "created again"),
        (Mark("a", 0), log(topic_id="b", end=0), "created again"),
        (Mark("a", 40), log(begin=50), "no longer in the log"),
        (Mark("a", 120), log(), "log ends at 100"),
    ],
)
def test_a_changed_log_stops_the_partition(mark, seen, word):
    stopped = start_of(mark, seen)
    assert isinstance(stopped, Stopped)
    assert word in stopped.alarm
    assert "--accept-reset" in stopped.alarm


def test_a_lost_watermark_is_said():
    assert "no" in start_of(None, log(committed=50)).warning
    assert start_of(None, log()).warning == ""


def test_a_gap_is_what_the_group_knows_and_the_database_does_not():
    assert gap_end(Mark("a", 40), log(committed=50)) == 50
    assert gap_end(None, log(committed=50)) == 50
    assert gap_end(Mark("a", 60), log(committed=50)) is None
    assert gap_end(Mark("a", 60), log()) is None
    assert gap_end(None, log(begin=50, committed=50)) is None
    assert gap_end(Mark("a", 40), log(end=45, committed=50)) == 45, "a log that was cut off ends before it"
    assert gap_end(Mark("a", 45), log(end=45, committed=50)) is None


def test_an_empty_partition_shares_the_fate_of_its_topic():
    marks = {("t", 0): Mark("a", 40), ("t", 1): Mark("", 0)}
    logs = {("t", partition): log(topic_id="b") for partition in range(3)}
    found = of_one_topic(marks, logs)
    assert all(isinstance(start_of(found[tp], logs[tp]), Stopped) for tp in logs)
    same = {tp: log(topic_id="a") for tp in logs}
    assert of_one_topic(marks, same) == marks
