import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol.codes import VERSION, RequestCode
from turbopump.protocol.command import LANGUAGES, TRUNCATED_CODES, Command, decode, encode, reply, request
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import JSON, ROCKETMQ, Frame, cut, pack
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i16 = st.integers(-(1 << 15), (1 << 15) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ext = st.none() | st.dictionaries(text, text, max_size=6)


def back(command: Command) -> Command:
    frames: list[Frame] = []
    data = encode(command)
    assert cut(data, frames) == len(data)
    return decode(frames[0])


def header(data: bytes) -> Command:
    return decode((JSON, data, b""))


@given(st.builds(Command, i32, i32, i32, text, i32, st.none() | text, ext, st.binary(max_size=50)))
@relaxed
def test_json_commands_come_back(command: Command) -> None:
    assert back(command) == command


@given(
    st.builds(
        Command,
        i16.filter(lambda code: code not in TRUNCATED_CODES),
        i32,
        i32,
        st.sampled_from(LANGUAGES),
        i16,
        st.none() | text.filter(bool),
        st.none() | st.dictionaries(text, text, min_size=1, max_size=6),
        st.binary(max_size=50),
        st.just(ROCKETMQ),
    )
)
@relaxed
def test_binary_commands_come_back(command: Command) -> None:
    assert back(command) == command


@given(st.binary(max_size=80), st.sampled_from([JSON, ROCKETMQ]))
@relaxed
def test_arbitrary_headers_are_commands_or_broken(data: bytes, encoding: int) -> None:
    try:
        command = decode((encoding, data, b""))
    except BrokenFrame:
        return
    assert back(command).code == command.code


def test_a_json_request_has_javas_bytes() -> None:
    command = Command(105, language="JAVA", version=479, ext={"topic": "TBW102"})
    line = (
        b'{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA",'
        b'"opaque":0,"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert encode(command) == bytes.fromhex("00000084 00000080") + line
    assert len(encode(command)) == 136


def test_a_json_failure_has_javas_bytes() -> None:
    command = Command(17, 7, 1, "JAVA", 479, "none")
    line = (
        b'{"code":17,"flag":1,"language":"JAVA","opaque":7,"remark":"none",'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert encode(command) == bytes.fromhex("00000074 00000070") + line


def test_a_binary_request_has_javas_bytes() -> None:
    command = Command(105, 7, 2, "JAVA", 479, ext={"topic": "TBW102"}, encoding=ROCKETMQ)
    assert encode(command) == bytes.fromhex(
        "0000002a 01000026 0069 00 01df 00000007 00000002 00000000 00000011"
        "0005 746f706963 00000006 544257313032"
    )
    assert back(command) == command


def test_separators_of_properties_are_escaped_as_java_does() -> None:
    command = Command(310, ext={"i": "UNIQ_KEY\x01ABC\x02WAIT\x01true\x02"})
    assert rb'"UNIQ_KEY\u0001ABC\u0002WAIT\u0001true\u0002"' in encode(command)


def test_a_reply_has_opaque_and_encoding_of_its_request() -> None:
    asked = Command(11, 42, 2, "GO", 317, encoding=ROCKETMQ)
    answer = reply(asked, 19, "nothing", {"a": "b"}, b"body")
    assert answer == Command(19, 42, 1, "PYTHON", VERSION, "nothing", {"a": "b"}, b"body", ROCKETMQ)
    assert answer.is_response
    assert not answer.is_oneway
    assert asked.is_oneway


def test_a_request_carries_its_header() -> None:
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic="T"), b"x")
    assert command == Command(105, ext={"topic": "T"}, body=b"x")
    assert request(RequestCode.GET_BROKER_CLUSTER_INFO).ext is None


def test_an_empty_object_is_a_header_with_javas_defaults() -> None:
    assert header(b"{}") == Command(0, 0, 0, "JAVA", 0)


def test_unknown_keys_are_ignored_and_blanks_allowed() -> None:
    found = header(b' { "code" : 34 , "new" : [1, {"x": null}], "opaque": 5 } \n')
    assert (found.code, found.opaque) == (34, 5)


def test_ext_values_that_are_no_text_become_text_and_nulls_are_dropped() -> None:
    assert header(b'{"extFields":{"a":' + b"9" * 30 + b"}}").ext == {"a": "9" * 30}
    found = header(b'{"code":1,"extFields":{"a":5,"b":true,"c":null,"d":"x","e":1.5,"f":[1]}}')
    assert found.ext == {"a": "5", "b": "true", "d": "x", "e": "1.5", "f": "[1]"}
    assert header(b'{"extFields":null}').ext is None
    assert header(b'{"extFields":{}}').ext == {}


def test_numbers_may_be_quoted_or_null() -> None:
    found = header(b'{"code":"105","flag":"2","opaque":"-7","version":null}')
    assert (found.code, found.flag, found.opaque, found.version) == (105, 2, -7, 0)


def test_a_language_may_be_a_number_or_unknown() -> None:
    assert header(b'{"code":1,"language":9}').language == "GO"
    assert header(b'{"code":1,"language":99}').language == "OTHER"
    assert header(b'{"code":1,"language":"KLINGON"}').language == "KLINGON"
    assert back(Command(1, language="KLINGON")).language == "KLINGON"
    assert back(Command(1, language="KLINGON", encoding=ROCKETMQ)).language == "OTHER"


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"5",
        b'"x"',
        b"null",
        b"{",
        b"{}x",
        b"{} {}",
        b'{"code":"six"}',
        b'{"code":2147483648}',
        b'{"opaque":-2147483649}',
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
        b'{"remark":"\xff"}',
        b'{"remark":"\\ud800"}',
        b'{"code":[1]}',
        b'{"a":' * 5000,
        b"{'code':1}",
        b"{code:1}",
        b'{"code":1,}',
    ],
)
def test_a_header_that_is_no_readable_object_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenFrame):
        header(data)


@pytest.mark.parametrize(
    ("field", "low", "high"), [("code", -(1 << 31), (1 << 31) - 1), ("opaque", -(1 << 31), (1 << 31) - 1)]
)
def test_numbers_keep_to_32_bits(field: str, low: int, high: int) -> None:
    assert getattr(header(b'{"%s":%d}' % (field.encode(), low)), field) == low
    assert getattr(header(b'{"%s":%d}' % (field.encode(), high)), field) == high
    for beyond in (low - 1, high + 1):
        with pytest.raises(BrokenFrame):
            header(b'{"%s":%d}' % (field.encode(), beyond))


def binary(ext_block: bytes = b"", remark: bytes = b"", **lengths: int) -> bytes:
    remark_length = lengths.get("remark_length", len(remark))
    ext_length = lengths.get("ext_length", len(ext_block))
    fixed = struct.pack(">hBhiii", 105, 0, 479, 7, 0, remark_length)
    return fixed + remark + struct.pack(">i", ext_length) + ext_block


def entry(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def test_binary_ext_fields_may_repeat_and_be_empty() -> None:
    block = entry(b"a", b"1") + entry(b"b", b"") + entry(b"a", b"2")
    assert decode((ROCKETMQ, binary(block), b"")).ext == {"a": "2", "b": ""}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        binary()[:20],
        binary(remark_length=-1),
        binary(remark_length=1000),
        binary(ext_length=-4),
        binary(ext_length=5),
        binary(entry(b"a", b"1"), ext_length=3),
        binary() + b"x",
        binary(b"\xff\xff"),
        binary(b"\x00\x01a\xff\xff\xff\xff"),
        binary(b"\x00\x01a\x7f\xff\xff\xff"),
        binary(b"\x00\x01a"),
        binary(entry(b"\xff", b"1")),
        binary(remark=b"\xc0"),
    ],
)
def test_a_binary_header_that_does_not_add_up_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenFrame):
        decode((ROCKETMQ, data, b""))


def test_pop_codes_survive_the_16_bits_of_binary_headers() -> None:
    assert TRUNCATED_CODES[3442] == RequestCode.POP_MESSAGE
    assert TRUNCATED_CODES[3543] == RequestCode.BATCH_ACK_MESSAGE
    assert back(Command(200050, encoding=ROCKETMQ)).code == 200050
    assert back(Command(3442, flag=1, encoding=ROCKETMQ)).code == 3442  # a response code is what it says


def test_what_is_left_of_a_pop_code_is_no_other_code() -> None:
    assert not TRUNCATED_CODES.keys() & {int(code) for code in RequestCode}


def test_negative_response_codes_fit_binary_headers() -> None:
    assert back(Command(-1006, flag=1, encoding=ROCKETMQ)).code == -1006


def test_frames_of_commands_hold_header_and_body_apart() -> None:
    frames: list[Frame] = []
    cut(encode(Command(1, body=b'{"x":1}')), frames)
    assert frames[0][2] == b'{"x":1}'
    assert msgspec.json.decode(frames[0][1])["code"] == 1
    assert pack(JSON, frames[0][1], frames[0][2]) == encode(Command(1, body=b'{"x":1}'))
