"""Trace records: the layout of Apache's clients, both ways."""

from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.observe.trace import (
    AFTER,
    BEFORE,
    END,
    PUB,
    RECALL,
    Trace,
    TraceMessageKind,
    TraceOutcome,
    decode,
    encode,
)

SENT = Trace(
    PUB,
    "ID1",
    "orders",
    "OrderTopic",
    1_700_000_000_000,
    3,
    True,
    "A-1 A-2",
    region="DefaultRegion",
    tags="paid",
    store_host="10.0.0.2:10911",
    body_size=5,
    kind=TraceMessageKind.DELAY,
    offset_message_id="OFF1",
)

texts = st.text(st.characters(exclude_characters="\x01\x02"), max_size=8).filter(lambda text: text != "null")
numbers = st.integers(0, 1 << 62)


def lines(*fields: str) -> str:
    return "\x01".join(fields) + "\x02"


def test_a_send_is_written_as_apaches_clients_do() -> None:
    assert encode(SENT) == lines(
        *("Pub", "1700000000000", "DefaultRegion", "orders", "OrderTopic", "ID1", "paid", "A-1 A-2"),
        *("10.0.0.2:10911", "5", "3", "3", "OFF1", "true"),
    )


def test_a_delivery_is_written_before_and_after() -> None:
    before = Trace(BEFORE, "ID1", "billing", time_ms=7, request_id="R1", region="r", retry_times=2)
    assert encode(before) == lines("SubBefore", "7", "r", "billing", "R1", "ID1", "2", "null")
    after = Trace(
        AFTER, "ID1", "billing", None, 9, 2, False, "k", request_id="R1", outcome=TraceOutcome.EXCEPTION
    )
    assert encode(after) == lines("SubAfter", "R1", "ID1", "2", "false", "k", "2", "9", "billing")


def test_a_cloud_wants_less_of_what_comes_after_a_delivery() -> None:
    after = Trace(AFTER, "ID1", "billing", time_ms=9, request_id="R1")
    assert encode(after, is_cloud=True) == lines("SubAfter", "R1", "ID1", "0", "true", "null", "0", "")
    assert encode(SENT, is_cloud=True) == encode(SENT)


def test_the_end_of_a_transaction_is_always_of_kind_commit() -> None:
    end = Trace(END, "ID1", "orders", "T", 5, transaction_id="TX", state="ROLLBACK_MESSAGE", from_check=True)
    assert encode(end) == lines(
        *("EndTransaction", "5", "null", "orders", "T", "ID1", "null", "null", "null", "2"),
        *("TX", "ROLLBACK_MESSAGE", "true"),
    )


def test_older_records_are_read_too() -> None:
    (old,) = decode(lines("Pub", "1", "r", "g", "T", "ID", "tag", "k", "h:1", "5", "3", "0", "true"))
    assert (old.is_success, old.offset_message_id) == (True, None)
    (go,) = decode(encode(SENT).removesuffix("\x02") + "\x0110.0.0.9\x02")
    assert go == SENT
    (short,) = decode(lines("SubAfter", "R", "ID", "3", "true", "k"))
    assert (short.cost_ms, short.group, short.time_ms) == (3, None, 0)


def test_what_cannot_be_read_is_left_out() -> None:
    assert decode("nonsense\x02Pub\x01short\x02" + encode(SENT)) == [SENT]
    assert decode(lines("SubBefore", "noon", "r", "g", "R", "ID", "0", "k")) == []


@given(texts, texts, texts, st.none() | texts, numbers, numbers, st.booleans(), st.sampled_from(TraceOutcome))
def test_what_is_written_is_read_again(
    message_id: str,
    group: str,
    topic: str,
    keys: str | None,
    time_ms: int,
    cost_ms: int,
    is_success: bool,
    outcome: TraceOutcome,
) -> None:
    records = [
        Trace(
            PUB, message_id, group, topic, time_ms, cost_ms, is_success, keys, tags=keys, body_size=cost_ms
        ),
        Trace(BEFORE, message_id, group, None, time_ms, keys=keys, request_id=topic, retry_times=3),
        Trace(AFTER, message_id, group, None, time_ms, cost_ms, is_success, keys, topic, outcome=outcome),
        Trace(
            END,
            message_id,
            group,
            topic,
            time_ms,
            kind=TraceMessageKind.COMMIT,
            state="UNKNOW",
            from_check=is_success,
        ),
        Trace(RECALL, message_id, group, topic, time_ms, is_success=is_success, region=keys),
    ]
    assert decode("".join(map(encode, records))) == records
