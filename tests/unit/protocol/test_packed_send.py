from hypothesis import given
from hypothesis import strategies as st

from turbopump.protocol.command import Command, decode
from turbopump.protocol.frame import Frame, cut
from turbopump.protocol.packed_send import PackedSend, head_of

NUMBERS = st.integers(0, (1 << 31) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(
    st.sampled_from([310, 320, 325]),
    st.dictionaries(st.sampled_from("abcdefhjklmn"), TEXTS, min_size=1),
    st.integers(0, 1 << 50),
    TEXTS,
    st.binary(max_size=100),
    NUMBERS,
    st.sampled_from([0, 2]),
)
def test_a_packed_send_reads_as_the_command_with_the_same_fields(
    code: int, fields: dict[str, str], born_ms: int, properties: str, body: bytes, opaque: int, flag: int
) -> None:
    frame = PackedSend(code, head_of(code, fields), born_ms, properties, body).frame(opaque, flag)
    frames: list[Frame] = []
    assert cut(frame, frames) == len(frame)
    ext = {**fields, "g": str(born_ms), "i": properties}
    assert decode(frames[0]) == Command(code, opaque, flag, ext=ext, body=body)
