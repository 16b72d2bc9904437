from turbopump.broker.traffic import Traffic


class Hands:
    """A clock that stands still until it is set."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def pass_seconds(clock: Hands, traffic: Traffic, seconds: int, puts_each: int = 0) -> None:
    for _ in range(seconds):
        clock.ms += 1000
        traffic.put_messages += puts_each
        traffic.sample()


def test_rates_are_over_the_last_10_60_and_600_seconds() -> None:
    clock = Hands()
    traffic = Traffic(clock)
    pass_seconds(clock, traffic, 600, puts_each=10)
    pass_seconds(clock, traffic, 10, puts_each=70)
    assert traffic.put_rates() == "70.00 20.00 11.00"
    assert traffic.got_rates() == "0.00 0.00 0.00"


def test_a_young_broker_gives_the_rate_since_its_start() -> None:
    clock = Hands()
    traffic = Traffic(clock)
    assert traffic.put_rates() == "0.00 0.00 0.00"
    pass_seconds(clock, traffic, 4, puts_each=5)
    assert traffic.put_rates() == "5.00 5.00 5.00"


def test_totals_of_the_day_begin_at_midnight() -> None:
    clock = Hands()
    traffic = Traffic(clock)
    pass_seconds(clock, traffic, 1, puts_each=7)
    clock.ms += 24 * 3600 * 1000
    traffic.sample()
    assert (traffic.put_total_yesterday, traffic.put_total_this_morning) == (0, 7)
    traffic.put_messages += 3
    clock.ms += 24 * 3600 * 1000
    traffic.sample()
    assert (traffic.put_total_yesterday, traffic.put_total_this_morning) == (7, 10)


def test_times_fall_into_apaches_buckets() -> None:
    traffic = Traffic(Hands())
    for milliseconds in (0, 1, 10, 11, 500, 501, 10_000, 10_001):
        traffic.took(milliseconds)
    assert traffic.puts_by_time == [1, 2, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert traffic.slowest_put_ms == 10_001
