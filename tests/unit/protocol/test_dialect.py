import contextlib
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol.dialect import dumps, dumps_pretty, loads, standard
from turbopump.protocol.errors import BrokenBody

text = st.text(st.characters(codec="utf-8"), max_size=10)
plain_values: Any = st.recursive(
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | text,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(text, inner, max_size=3)
        | st.dictionaries(st.integers(-99, 99), inner, max_size=3)
    ),
    max_leaves=12,
)


def keyed_by_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): keyed_by_text(item) for key, item in value.items()}
    return [keyed_by_text(item) for item in value] if isinstance(value, list) else value


@given(plain_values)
@relaxed
def test_values_come_back_with_keys_as_text(value: Any) -> None:
    assert loads(dumps(value)) == keyed_by_text(value)
    assert loads(dumps_pretty(value)) == keyed_by_text(value)


@given(plain_values)
@relaxed
def test_standard_json_is_left_as_it_is(value: Any) -> None:
    data = msgspec.json.encode(value)
    assert standard(data) == data
    assert loads(data) == msgspec.json.decode(data)


@given(st.text('{}[]:,"\\ 01ax.-', max_size=40))
@relaxed
def test_arbitrary_text_is_read_or_broken(garbage: str) -> None:
    with contextlib.suppress(BrokenBody):
        loads(garbage.encode())


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{0:"10.0.0.1:10911",1:"x"}', {"0": "10.0.0.1:10911", "1": "x"}),
        (b'{ 0 : "a" ,\n\t-1:\t"b"}', {"0": "a", "-1": "b"}),
        (b'{"t":{0:250,1:251\n\t\t}\n}', {"t": {"0": 250, "1": 251}}),
        (b'{{"q":0,"t":"T"}:5}', {'{"q":0,"t":"T"}': 5}),
        (b'{ { "q" : 0 } : {{}:1}, 2:[{3:4}]}', {'{"q":0}': {"{}": 1}, "2": [{"3": 4}]}),
        (b'{{"a:b,{":"}:\\"1:"}:{0:"x,1:2"}}', {'{"a:b,{":"}:\\"1:"}': {"0": "x,1:2"}}),
        (b'[{0:1},{"0":1}]', [{"0": 1}, {"0": 1}]),
        (b'{topic.name:1,$ref:"$.x"}', {"topic.name": 1, "$ref": "$.x"}),
        (b"{0:1.0E20,1:null,2:true}", {"0": 1e20, "1": None, "2": True}),
    ],
)
def test_what_fastjson_writes_is_read(data: bytes, value: Any) -> None:
    assert loads(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"}",
        b"{0}",
        b"{0:}",
        b"{0:1",
        b"[0:1]",
        b"{0:1}}",
        b"{0:1}x",
        b"{:1}",
        b"{[1]:1}",
        b"{{{}:1}:1}",
        b"{0 1:1}",
        b'{0:"x}',
        b'{0:"x\\"}',
        b"{\x01:1}",
        b"{0:\x01}",
        b'{{"a":1:2}',
        b"{'a':1}",
        b"{0:1,}",
        b"\xff",
        b'{0:"\xff"}',
        b"[" * 200_000 + b"]" * 200_000,
        b"{0:" * 200_000 + b"1" + b"}" * 200_000,
    ],
)
def test_garbage_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenBody):
        loads(data)


def test_text_beyond_the_limit_is_broken_only_when_it_is_no_standard_json() -> None:
    assert loads(b'{"a":1}', limit=3) == {"a": 1}
    assert loads(b"{0:1}", limit=5) == {"0": 1}
    with pytest.raises(BrokenBody, match="at most 4 bytes"):
        loads(b"{0:1}", limit=4)


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b'\\"' * 150_000,
        b"{0:" + b'"' * 300_001,
        b"{" * 300_000,
        b"{}" * 150_000,
        b"{0:[" + b", " * 150_000,
        b"{0" + b" " * 300_000,
        b"a " * 150_000,
        b"{" + b"1:" * 150_000,
        b"{" + b"{}:1," * 60_000,
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(data: bytes) -> None:
    started = time.process_time()
    with pytest.raises(BrokenBody):
        loads(data)
    assert time.process_time() - started < 3


def test_compact_output_is_javas() -> None:
    value = {"b": {0: "x", 1: None}, "a": [1, True, "é\x01/"], "c": {}, "d": [], "e": 0.0}
    assert dumps(value) == '{"b":{0:"x"},"a":[1,true,"é\\u0001/"],"c":{},"d":[],"e":0.0}'.encode()


def test_pretty_output_is_apaches() -> None:
    value = {"table": {"t@g": {0: 5, 1: 7}}, "empty": {}, "list": ["a", "b"], "bits": (55, 43), "none": []}
    assert dumps_pretty(value).decode().split("\n") == [
        "{",
        '\t"table":{',
        '\t\t"t@g":{',
        "\t\t\t0:5,",
        "\t\t\t1:7",
        "\t\t}",
        "\t},",
        '\t"empty":{},',
        '\t"list":[',
        '\t\t"a",',
        '\t\t"b"',
        "\t],",
        '\t"bits":[55,43],',
        '\t"none":[]',
        "}",
    ]
