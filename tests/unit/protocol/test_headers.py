from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.headers.base import I32, I64, Header
from turbopump.protocol.headers.offsets import GetMaxOffsetRequest, OffsetResponse
from turbopump.protocol.headers.pull import PullMessageRequest
from turbopump.protocol.headers.query import QueryMessageRequest
from turbopump.protocol.headers.send import SendMessageRequest, SendMessageV2Request
from turbopump.protocol.headers.table import REQUESTS, RESPONSES
from turbopump.protocol.headers.topics import CreateTopicRequest, DeleteSubscriptionGroupRequest

ALL = sorted({*REQUESTS.values(), *RESPONSES.values()}, key=lambda kind: kind.__name__)


i32, i64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (31, 63))
text = st.text(max_size=6)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: text,
    str | None: st.none() | text,
    bool: st.booleans(),
    bool | None: st.none() | st.booleans(),
    I32: i32,
    I32 | None: st.none() | i32,
    I64: i64,
    I64 | None: st.none() | i64,
}


@given(st.sampled_from(ALL), st.data())
@relaxed
def test_headers_come_back(kind: type[Header], data: st.DataObject) -> None:
    fields = {field.name: data.draw(VALUES[field.type]) for field in msgspec.structs.fields(kind)}
    header = kind(**fields)
    assert kind.from_ext(header.to_ext()) == header


@given(st.sampled_from(ALL), st.dictionaries(st.sampled_from(sorted("abcdefghijklmn")), st.text(max_size=6)))
@relaxed
def test_arbitrary_fields_are_a_header_or_refused(kind: type[Header], ext: dict[str, str]) -> None:
    named = dict(zip(kind.__struct_encode_fields__, ext.values(), strict=False))
    for fields in (ext, named):
        try:
            kind.from_ext(fields)
        except SystemFailure as error:
            assert any(name in error.remark for name in kind.__struct_encode_fields__)  # noqa: PT017


def test_letters_are_the_long_names() -> None:
    ext = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "5", "h": "7", "i": "P",
           "j": "2", "k": "true", "l": "16", "m": "true", "n": "broker-a"}  # fmt: skip
    header = SendMessageV2Request.from_ext(ext)
    assert (header.topic, header.queueId, header.properties, header.batch) == ("T", 1, "P", True)
    assert header.maxReconsumeTimes == 16
    assert isinstance(header, SendMessageRequest)
    assert header.to_ext() == ext
    assert set(SendMessageV2Request.__struct_fields__) == set(SendMessageRequest.__struct_fields__)


def test_nothing_is_written_for_none_and_flags_are_words() -> None:
    assert GetMaxOffsetRequest("T", 3).to_ext() == {"topic": "T", "queueId": "3", "committed": "true"}
    assert CreateTopicRequest(1, 1, 6, "SINGLE_TAG").to_ext()["order"] == "false"
    assert "attributes" not in CreateTopicRequest(1, 1, 6, "SINGLE_TAG").to_ext()


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("false", False), ("yes", False), ("", False), ("0", False)],
)
def test_only_the_word_true_sets_a_flag(text: str, value: bool) -> None:
    ext = {"topic": "T", "queueId": "0", "committed": text}
    assert GetMaxOffsetRequest.from_ext(ext).committed is value


@pytest.mark.parametrize("number", ["-2147483648", "2147483647", "0", "007", "+5", "-0"])
def test_numbers_are_read_as_java_reads_them(number: str) -> None:
    assert GetMaxOffsetRequest.from_ext({"topic": "T", "queueId": number}).queueId == int(number)


@pytest.mark.parametrize(
    "number", ["", " ", "x", "2147483648", "-2147483649", "1" * 5000, "0x5", "١.", "null"]
)
def test_a_required_number_that_is_none_is_refused_by_name(number: str) -> None:
    with pytest.raises(SystemFailure, match="the field queueId cannot be"):
        GetMaxOffsetRequest.from_ext({"topic": "T", "queueId": number})


def test_a_missing_required_field_is_refused_by_name() -> None:
    for ext in (None, {}, {"queueId": "0"}):
        with pytest.raises(SystemFailure, match="the field topic is missing"):
            GetMaxOffsetRequest.from_ext(ext)


def test_an_optional_number_that_is_none_counts_as_absent() -> None:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    header = PullMessageRequest.from_ext({**ext, "sysFlag": "2", "subVersion": "", "maxMsgBytes": "lots"})
    assert (header.subVersion, header.maxMsgBytes, header.commitOffset) == (0, 262144, 0)


def test_64_bit_numbers_keep_to_64_bits() -> None:
    for number in ((1 << 63) - 1, -(1 << 63)):
        assert OffsetResponse.from_ext({"offset": str(number)}).offset == number
        with pytest.raises(SystemFailure):
            OffsetResponse.from_ext({"offset": str(number * 2)})


def test_the_text_null_stays_a_text() -> None:
    assert GetMaxOffsetRequest.from_ext({"topic": "null", "queueId": "0"}).topic == "null"


def test_a_field_with_an_underscore_keeps_its_wire_name() -> None:
    ext = {"topic": "T", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    header = QueryMessageRequest.from_ext({**ext, "_UNIQUE_KEY_QUERY": "true"})
    assert header.unique_key_query is True
    assert header.to_ext() == {**ext, "_UNIQUE_KEY_QUERY": "true"}


@pytest.mark.parametrize("spelling", ["cleanOffset", "removeOffset"])
def test_both_spellings_of_cleaning_offsets_count(spelling: str) -> None:
    assert DeleteSubscriptionGroupRequest.from_ext({"groupName": "G", spelling: "true"}).cleans_offsets
    assert not DeleteSubscriptionGroupRequest.from_ext({"groupName": "G"}).cleans_offsets
