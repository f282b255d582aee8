"""The pure core of a batch: rate, ramp, window, ring and canary; the time is an argument."""

from datetime import UTC, datetime, timedelta

import pytest

from outbox.replay_batches import pacing

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def later(seconds):
    return NOW + timedelta(seconds=seconds)


# -- rate --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("seconds", "rate"), [(0, 1), (0.1, 1), (3, 5), (15, 25), (30, 50), (3000, 50)])
def test_a_rate_climbs_within_thirty_seconds(seconds, rate):
    assert pacing.rate_at(50, NOW, later(seconds)) == pytest.approx(rate)


def test_a_rate_below_one_is_never_exceeded_and_without_a_ramp_it_holds_at_once():
    assert pacing.rate_at(0.5, NOW, NOW) == 0.5
    assert pacing.rate_at(50, None, NOW) == 50


def test_tokens_come_with_time_and_do_not_pile_up():
    assert pacing.tokens_at(0, None, 50, NOW) == 1  # the first look
    assert pacing.tokens_at(2, NOW, 50, later(0.1)) == pytest.approx(7)
    assert pacing.tokens_at(2, NOW, 50, later(3600)) == 50  # a second's worth after an hour's pause
    assert pacing.tokens_at(3, later(60), 50, NOW) == 3  # a clock that was set back grants nothing
    assert pacing.tokens_at(0, NOW, 0.1, later(3600)) == 1


@pytest.mark.parametrize("rate", [0.5, 7, 50, 400, 5000])
def test_an_hour_of_looks_takes_what_the_rate_allows(rate):
    tokens, taken, at = 0.0, 0, NOW
    for tick in range(36_000):
        now = later(tick / 10)
        tokens = pacing.tokens_at(tokens, at, rate, now)
        if tokens >= (bunch := pacing.bunch(rate, 500)):
            number = min(int(tokens), 500)
            assert number >= bunch
            tokens, taken = tokens - number, taken + number
        at = now
    assert rate * 3600 * 0.99 - 2 <= taken <= rate * 3600 + rate + 1


def test_the_wait_for_tokens_is_as_long_as_they_take():
    assert pacing.seconds_until(10, 4, 50) == pytest.approx(0.12)
    assert pacing.seconds_until(10, 40, 50) == 0


@pytest.mark.parametrize(("rate", "window"), [(None, 500), (0.5, 50), (5, 50), (20, 200), (50, 500), (9000, 500)])
def test_the_window_is_ten_seconds_of_the_rate_within_limits(rate, window):
    assert pacing.window_of(rate) == window


@pytest.mark.parametrize(("per_second", "window"), [(0, 50), (3, 50), (15, 150), (50, 500), (400, 500)])
def test_before_live_traffic_the_window_is_ten_seconds_of_what_is_judged(per_second, window):
    speed = pacing.Speed(100.0)
    for second in range(1, 61):
        speed.add(per_second, 100.0 + second)
    assert speed.window_at(160.0) == window
    assert speed.window_at(165.5) in (window, max(50, per_second * 5))  # half of them are long ago
    assert speed.window_at(1000.0) == 50


def test_before_the_first_verdict_the_window_is_the_least():
    speed = pacing.Speed(0.0)
    assert speed.window_at(0.0) == 50
    speed.add(20, 0.5)
    assert speed.window_at(0.5) == 200  # a second at least, however few the verdicts are


def test_chunks_grow_with_what_was_taken():
    assert [pacing.chunk_of(taken, 500) for taken in (0, 20, 40, 300, 9000)] == [20, 20, 40, 300, 500]
    assert pacing.chunk_of(0, 5) == 5


# -- stop rule ---------------------------------------------------------------------------------------
def verdicts(text):
    return [mark == pacing.GOOD for mark in text]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("x" * 19, False),  # nobody judges by nineteen
        ("x" * 20, True),
        ("x" + "." * 19, False),  # 5 % of 20 is not more than 5 %
        ("xx" + "." * 18, True),
        ("." * 95 + "x" * 5, False),
        ("." * 94 + "x" * 6, True),
        ("." * 300 + "x" * 5, False),
    ],
)
def test_more_than_five_percent_of_the_last_hundred_stop(text, broken):
    assert pacing.add_verdicts("", verdicts(text))[1] is broken


def test_a_server_that_fails_every_tenth_is_found_out_whatever_the_chunks():
    for size in (1, 7, 50, 500):
        ring, seen = "", 0
        while True:
            chunk = ["." if (seen + at) % 10 else "x" for at in range(size)]
            ring, broken = pacing.add_verdicts(ring, verdicts("".join(chunk)))
            seen += size
            if broken:
                break
        assert seen <= 20 + size


def test_the_rule_was_broken_if_any_moment_broke_it():
    """Of a chunk that began badly and ended well."""
    ring, broken = pacing.add_verdicts("." * 50, verdicts("x" * 10 + "." * 200))
    assert broken
    assert ring == "." * 100


def test_a_ring_remembers_a_hundred_and_its_own_limit():
    ring, _ = pacing.add_verdicts("x" * 100, verdicts("." * 99))
    assert ring == "x" + "." * 99
    assert pacing.share_of_bad(ring) == 1
    assert not pacing.breaks("x" * 10 + "." * 90, percent=10)


# -- canary ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("eligible", "size"), [(0, 0), (1, 1), (9, 1), (10, 1), (25, 2), (99, 9), (100, 10), (9999, 10)]
)
def test_a_canary_is_ten_or_a_tenth(eligible, size):
    assert pacing.canary_size(eligible) == size


def test_a_canary_is_spread_over_the_set_and_starts_with_the_oldest():
    assert pacing.choose_canary([(n, "") for n in range(100)], 100, 10) == list(range(0, 100, 10))


def test_a_canary_takes_the_oldest_of_different_keys():
    letters = [(n, f"K{n % 5}") for n in range(1000)]
    assert sorted(pacing.choose_canary(letters, 1000, 10)) == [0, 1, 2, 3, 4]
    hot = [(n, "hot" if n < 950 else f"K{n}") for n in range(1000)]
    chosen = pacing.choose_canary(hot, 1000, 10)
    assert len(chosen) == 10
    assert 0 in chosen
    assert not set(chosen) & set(range(1, 950))


@pytest.mark.parametrize("total", [1, 3, 10, 11, 99, 100, 101, 1234])
def test_a_canary_has_its_size_whenever_there_are_keys_enough(total):
    size = min(total, 10)
    chosen = pacing.choose_canary([(n, f"K{n}") for n in range(total)], total, size)
    assert len(chosen) == len(set(chosen)) == size


def test_marks_are_five_seconds_apart_and_of_the_last_minute():
    marks = []
    for at in range(200):
        marks = pacing.add_mark(marks, at * 3, float(at))
    assert [at for at, _turns in marks] == list(range(135, 196, 5))
    assert pacing.measured_rate(marks, 199 * 3, 199.0) == 3
