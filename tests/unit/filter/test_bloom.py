"""Bits that stand for groups: as Apache's classes calculated them."""

import json
from pathlib import Path

from turbopump.filter.bloom import BloomFilter, mask

RECORDED = Path(__file__).parents[2] / "compat" / "recorded" / "filters.json"


def test_our_bits_are_apaches() -> None:
    for error_percent, groups, text, answer in json.loads(RECORDED.read_text())["blooms"]:
        bloom = BloomFilter(error_percent, groups)
        positions = bloom.positions_of(text)
        shown = ",".join(map(str, positions))
        bits = mask(positions).to_bytes(bloom.size // 8, "little")
        assert f"{bloom.size} [{shown}] {bits.hex()}" == answer, (error_percent, groups, text)


def test_by_default_a_group_has_three_of_112_bits() -> None:
    bloom = BloomFilter()
    assert (bloom.size, bloom.bits_per_group) == (112, 3)
    assert bloom.positions("g", "t") == bloom.positions_of("g#t")
