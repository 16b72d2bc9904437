from turbopump.broker.metrics.traffic import Traffic


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


class Stored:
    """A store that says how much it has."""

    def __init__(self) -> None:
        self.messages = 0

    def __call__(self) -> int:
        return self.messages


def pass_seconds(clock: Hands, traffic: Traffic, stored: Stored, seconds: int, puts_each: int = 0) -> None:
    for _ in range(seconds):
        clock.ms += 1000
        stored.messages += puts_each
        traffic.sample()


def queues(count: int) -> list:
    return [None] * count


def test_rates_are_over_the_last_10_60_and_600_seconds() -> None:
    clock, stored = Hands(), Stored()
    traffic = Traffic(clock, stored)
    pass_seconds(clock, traffic, stored, 600, puts_each=10)
    pass_seconds(clock, traffic, stored, 10, puts_each=70)
    assert traffic.put_rates() == "70.00 20.00 11.00"
    assert traffic.got_rates() == "0.00 0.00 0.00"


def test_a_young_broker_gives_the_rate_since_its_start() -> None:
    clock, stored = Hands(), Stored()
    traffic = Traffic(clock, stored)
    assert traffic.put_rates() == "0.00 0.00 0.00"
    pass_seconds(clock, traffic, stored, 4, puts_each=5)
    assert traffic.put_rates() == "5.00 5.00 5.00"


def test_times_fall_into_apaches_buckets() -> None:
    traffic = Traffic(Hands())
    for milliseconds in (0, 1, 9, 10, 49, 499, 500, 9_999, 10_000):
        traffic.took(milliseconds, queues(1))
    assert traffic.puts_by_time == [1, 2, 2, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert traffic.slowest_put_ms == 10_000


def test_the_distribution_is_of_the_last_whole_minute() -> None:
    clock, stored = Hands(), Stored()
    traffic = Traffic(clock, stored)
    traffic.took(0, queues(98))
    traffic.took(3, queues(1))
    traffic.took(70, queues(1))
    assert (traffic.put_latency_ms(0.9), traffic.put_latency_ms(0.99), traffic.put_latency_ms(0.999)) == (
        0,
        3,
        70,
    )
    pass_seconds(clock, traffic, stored, 60)
    traffic.took(1000, queues(5))
    assert traffic.put_latency_ms(0.99) == 3
    assert traffic.puts_by_time[:4] == [98, 1, 0, 1]
    pass_seconds(clock, traffic, stored, 60)
    assert traffic.put_latency_ms(0.5) == 1000
    pass_seconds(clock, traffic, stored, 60)
    assert traffic.put_latency_ms(0.99) == 0 == sum(traffic.puts_by_time)
