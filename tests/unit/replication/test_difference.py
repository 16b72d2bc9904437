"""The first place at which two logs differ."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual

from turbopump.replication import difference
from turbopump.replication.comparison import CannotCompare, Extent
from turbopump.replication.difference import first_difference
from turbopump.testing.loop import run_virtual


class Bytes:
    """A log in memory; counts the questions."""

    def __init__(self, data: bytes, begin: int = 0) -> None:
        self.data = data
        self.begin = begin
        self.asked = 0

    async def extent(self) -> Extent:
        return Extent(self.begin, self.begin + len(self.data))

    async def checksum(self, begin: int, end: int) -> int:
        assert self.begin <= begin < end <= self.begin + len(self.data)
        assert end - begin <= difference.MAX_STRETCH
        self.asked += 1
        return zlib.crc32(self.data[begin - self.begin : end - self.begin])


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "MAX_STRETCH", 16)


@given(
    st.integers(0, 300), st.integers(0, 300), st.integers(0, 299), st.integers(0, 40), st.integers(0, 40),
    st.booleans(),
)  # fmt: skip
def test_the_first_differing_byte_is_found(
    mine: int, theirs: int, at: int, my_begin: int, their_begin: int, is_whole: bool
) -> None:
    common = bytes(range(256)) * 2
    one = Bytes(common[my_begin : max(mine, my_begin)], my_begin)
    changed = common[:at] + bytes(255 - byte for byte in common[at:])  # from there on every byte differs
    other = Bytes(changed[their_begin : max(theirs, their_begin)], their_begin)
    begin, end = max(my_begin, their_begin), min(max(mine, my_begin), max(theirs, their_begin))

    async def find() -> int | None:
        return await first_difference(one, other, is_whole)

    if begin > end:
        with pytest.raises(CannotCompare):
            run_virtual(find())
        return
    assert run_virtual(find()) == (max(at, begin) if max(at, begin) < end else None)


@virtual
async def test_bisection_asks_few_questions() -> None:
    data = bytes(1 << 20)
    one, other = Bytes(data), Bytes(data[:700_001] + b"\x01" * (len(data) - 700_001))
    assert await first_difference(one, other) == 700_001
    assert one.asked < 25


@virtual
async def test_damage_in_the_middle_is_found_when_every_byte_is_compared() -> None:
    data = bytes(1000)
    damaged = Bytes(data[:300] + b"\x01" + data[301:])
    assert await first_difference(Bytes(data), damaged) is None  # bisection looks at the end, which is equal
    assert await first_difference(Bytes(data), damaged, is_whole=True) == 300
