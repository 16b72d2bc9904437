"""Delay levels: the text of the configuration, and which text counted when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.store.lab import HOST_V6, draft, new_disk, open_store

from turbopump.broker.config import ConfigError, load
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.store.config import DELAY_LEVELS
from turbopump.store.delays import DELIVER_AT, UNITS_MS, DelayHistory, DelayLevels
from turbopump.store.store import Store
from turbopump.testing.simulated_files import Survival

CONFIG = "/store/config"

levels = st.lists(st.tuples(st.integers(0, 999_999_999), st.sampled_from("smhd")), min_size=1, max_size=40)


def text_of(parts: list[tuple[int, str]]) -> str:
    return " ".join(f"{number}{unit}" for number, unit in parts)


@given(levels)
def test_every_level_is_its_number_times_its_unit(parts: list[tuple[int, str]]) -> None:
    text = text_of(parts)
    found = DelayLevels(text)
    assert len(found) == len(parts)
    for level, (number, unit) in enumerate(parts, 1):
        assert found.delay_ms(level) == number * UNITS_MS[unit]
    assert found.delay_ms(len(parts) + 1) == found.delay_ms(2**31 - 1) == found.delay_ms(len(parts))
    assert load(f"brokerName=a\nmessageDelayLevel={text}").config.store.message_delay_levels == text


@given(st.text("0123456789smhdx- \t", max_size=20))
def test_a_text_is_taken_whole_or_refused(text: str) -> None:
    """What the configuration accepts can be used, and what it does not is named with its line."""
    conf = f"brokerName=a\nmessageDelayLevel={text}"
    try:
        taken = load(conf).config.store.message_delay_levels
    except ConfigError as error:
        place = error.key, error.line
    else:
        assert len(DelayLevels(taken)) == taken.count(" ") + 1
        return
    assert place == ("messageDelayLevel", 2)


def test_the_usual_levels() -> None:
    usual = DelayLevels(DELAY_LEVELS)
    seconds = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    assert [usual.delay_ms(level) for level in range(1, 19)] == [1000 * second for second in seconds]
    assert len(usual) == 18


def test_history_knows_which_levels_counted_where() -> None:
    disk = new_disk()
    for text, log_end in (("1s", 0), ("1s", 500), ("5s 1m", 1000), ("9s", 2000)):
        history = DelayHistory(CONFIG, disk, text)
        history.go_on(0, log_end)
    assert [history.delay_ms(1, offset) for offset in (0, 999, 1000, 1999, 2000, 10**9)] == [
        1000, 1000, 5000, 5000, 9000, 9000
    ]  # fmt: skip
    assert history.delay_ms(2, 1500) == 60_000
    history = DelayHistory(CONFIG, disk, "2s")
    assert history.delay_ms(1, 10**9) == 9000  # until it is told where the log ends
    history.go_on(1500, 3000)
    assert [history.delay_ms(1, offset) for offset in (1500, 2500, 3000)] == [5000, 9000, 2000]
    assert disk.read(f"{CONFIG}/{DelayHistory.FILE}").count(b"levels") == 3  # the first part is gone


@pytest.mark.parametrize("data", [b"", b"{", b'[{"log_offset":0,"levels":"soon"}]', b"[1]"])
def test_a_damaged_history_is_as_none(data: bytes) -> None:
    disk = new_disk()
    disk.make_dirs(CONFIG)
    disk.write(f"{CONFIG}/{DelayHistory.FILE}", data)
    history = DelayHistory(CONFIG, disk, "3s")
    assert history.delay_ms(1, 10) == 3000
    history.go_on(0, 100)
    assert DelayHistory(CONFIG, disk, "3s").delay_ms(1, 10) == 3000


def delayed(store: Store, level: int, more: str = "") -> None:
    queue = store.queues.queue(SCHEDULE_TOPIC, level - 1)
    one = draft(queue, delay_ms=store.delays.delay_ms(level))
    one.properties = f"DELAY\x01{level}\x02{more}".encode()
    store.log.append([one])


def times(store: Store, level: int) -> list[int]:
    queue = store.queues.queue(SCHEDULE_TOPIC, level - 1)
    return [(queue.entry(offset) or (0, 0, 0))[2] for offset in range(queue.max_offset)]


def test_queues_that_are_made_anew_give_the_times_of_old() -> None:
    disk = new_disk()
    store = open_store(disk, message_delay_levels="10s")
    delayed(store, 1)
    before = times(store, 1)
    store = open_store(disk.crash(Survival.KEPT), message_delay_levels="1h")  # no queue was written yet
    assert times(store, 1) == before
    delayed(store, 1)
    assert times(store, 1)[1] - before[0] == 3_600_000 - 10_000


@pytest.mark.parametrize(
    ("more", "due"),
    [
        (f"{DELIVER_AT}\x011234567890123\x02", 1_234_567_890_123),
        (f"{DELIVER_AT}\x01{'9' * 40}\x02", None),
        (f"{DELIVER_AT}\x01soon\x02", None),
    ],
)
def test_what_was_written_anew_says_its_time(more: str, due: int | None) -> None:
    disk = new_disk()
    store = open_store(disk)
    delayed(store, 1, more)
    usual = times(store, 1)
    store = open_store(disk.crash(Survival.KEPT))
    assert times(store, 1) == ([due] if due is not None else usual)


def test_reading_on_from_where_no_record_begins_goes_on_with_the_next() -> None:
    """Files of timers and delays say where to read on, and they may be damaged."""
    store = open_store(new_disk())
    begins = []
    for number in range(40):
        one = draft(store.queues.queue("T", 0), bytes(100), tag="A", prepared_transaction_offset=-1 - number)
        begins.append(store.log.append([one])[0][0])
    assert store.log.end > store.commit_log.file_size
    for at in range(-5, store.log.end + 5):
        after = [number for number, begin in enumerate(begins) if begin >= at]
        assert store.log.references(at, 100) == ([-1 - number for number in after], store.log.end), at
        records, end = store.log.carrying(b"TAGS\x01A", at, 100)
        assert [record.physical_offset for record in records] == [begins[number] for number in after], at
        assert end == store.log.end


def test_the_log_tells_which_records_name_an_origin() -> None:
    store = open_store(new_disk())
    expected = []
    for number in range(100):
        host = HOST_V6 if number % 3 == 0 else bytes(8)
        origin = -number if number % 5 == 0 else 0
        store.log.append(
            [
                draft(
                    store.queues.queue("T", 0), bytes(100), prepared_transaction_offset=origin, born_host=host
                )
            ]
        )
        if origin:
            expected.append(origin)
    found, at = [], 0
    while at < store.log.end:
        some, at = store.log.references(at, 7)
        found += some
    assert found == expected
    assert store.log.references(at, 7) == ([], store.log.end)
    half = store.log.look_up(store.log.references(0, 50)[1])
    assert half is not None
    assert half.queue_offset == 50
