import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.auth.addresses import MAX_LISTED, MAX_TEXT, NO_ADDRESS, AddressPattern
from turbopump.protocol.conf import ConfigError

BYTES = st.integers(0, 255)
GROUPS = st.integers(0, 0xFFFF)


def matches(pattern: str, address: str) -> bool:
    return AddressPattern.parse(pattern).matches(address)


@pytest.mark.parametrize("text", ["", " ", "\t"])
def test_a_blank_pattern_matches_nothing(text: str) -> None:
    assert AddressPattern.parse(text) == NO_ADDRESS
    assert not matches(text, "127.0.0.1")
    assert not matches(text, "")


@pytest.mark.parametrize("text", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
def test_a_star_matches_every_address(text: str) -> None:
    assert all(matches(text, address) for address in ("127.0.0.1", "::1", "fe80::1%eth0"))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.4", "::1"]),
        ("10.1.2.3, 10.1.2.5", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.{3,5}", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4", "10.1.3.3"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.0"]),
        ("10.1.*.*", ["10.1.0.0", "10.1.255.255"], ["10.2.0.0"]),
        ("10.*.*.*", ["10.0.0.0"], ["11.0.0.0"]),
        ("10.1.2.5-9", ["10.1.2.5", "10.1.2.9"], ["10.1.2.4", "10.1.2.10"]),
        ("10.1.3-5.*", ["10.1.3.0", "10.1.5.255"], ["10.1.2.0", "10.1.6.0"]),
        ("10.1-2.7.9", ["10.1.7.9", "10.2.7.9"], ["10.1.7.8", "10.3.7.9"]),
        ("2001:db8::5", ["2001:db8::5", "2001:0db8:0:0:0:0:0:5"], ["2001:db8::6", "10.1.2.3"]),
        ("2001:db8::{5,a}", ["2001:db8::5", "2001:db8::A"], ["2001:db8::6"]),
        ("2001:db8::5:*", ["2001:db8::5:0", "2001:db8::5:ffff"], ["2001:db8::6:0", "2001:db8:5::"]),
        ("2001:db8::1-200", ["2001:db8::1", "2001:db8::200"], ["2001:db8::", "2001:db8::201"]),
        ("2001:db8::1-20:*", ["2001:db8::1:0", "2001:db8::20:ffff"], ["2001:db8::21:0", "2001:db8::0:1"]),
        ("1:2:3:4:5:6:7:*", ["1:2:3:4:5:6:7:8"], ["1:2:3:4:5:6:8:8"]),
    ],
)
def test_a_pattern_matches_these_addresses_only(pattern: str, inside: list[str], outside: list[str]) -> None:
    assert [address for address in inside if not matches(pattern, address)] == []
    assert [address for address in outside if matches(pattern, address)] == []
    assert not matches(pattern, "no address")


@pytest.mark.parametrize(
    "text",
    [
        *("10.1.2", "10.1.2.3.4", "10.1.2.256", "999.1.1.1", "10.1.2.", "a.b.c.d", "host", "-1.2.3.4"),
        *("*.1.2.3", "1-5.1.2.3", "10.1.2.9-5", "10.1.2.5-", "10.1.2.-5", "10.1.2.5-256", "10.1.2.5-6-7"),
        *("10.1.2.{3,4", "10.1.2.{3,4}.5", "10.1.2{3,4}", "10.1.2.{}", "10.1.2.{3,*}", "10.1.2.{3-5}"),
        *("10.1.2.*,10.1.3.4", "10.1.2.3,", "10.1.2.3,10.1.2.5-9", "٣.1.2.3", "10.1.2.٣"),
        *("2001:db8::*:5", "1-5::1", "2001::5-1", "2001:db8", "2001:::1", "1:2:3:4:5:6:7:8:*", "::10000"),
        *("1:2:3:*", "2001::1-10000", "::g", "::1%eth0", "2001:db8::1-2:1-2"),
    ],
)
def test_other_texts_are_no_pattern(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read|must be|must have"):
        AddressPattern.parse(text)


@given(BYTES, BYTES, BYTES, BYTES)
def test_an_address_matches_itself_and_no_neighbour(a: int, b: int, c: int, d: int) -> None:
    pattern = AddressPattern.parse(f"{a}.{b}.{c}.{d}")
    assert pattern.matches(f"{a}.{b}.{c}.{d}")
    assert not pattern.matches(f"{a}.{b}.{c}.{(d + 1) % 256}")
    assert not pattern.matches(f"{(a + 1) % 256}.{b}.{c}.{d}")


@given(BYTES, BYTES, BYTES, st.integers(1, 3))
def test_both_ends_of_a_range_belong_to_it_in_each_part(one: int, other: int, value: int, part: int) -> None:
    low, high = sorted((one, other))
    words = ["10", "20", "30", "40"]
    pattern = AddressPattern.parse(".".join([*words[:part], f"{low}-{high}", *words[part + 1 :]]))

    def at(number: int) -> str:
        return ".".join([*words[:part], str(number), *words[part + 1 :]])

    assert pattern.matches(at(low))
    assert pattern.matches(at(high))
    assert pattern.matches(at(value)) == (low <= value <= high)
    assert low == 0 or not pattern.matches(at(low - 1))
    assert high == 255 or not pattern.matches(at(high + 1))


@given(GROUPS, GROUPS, GROUPS, st.booleans())
def test_both_ends_of_a_range_of_ipv6_belong_to_it(one: int, other: int, value: int, has_star: bool) -> None:
    low, high = sorted((one, other))
    tail = ":*" if has_star else ""
    pattern = AddressPattern.parse(f"2001:db8::{low:x}-{high:X}{tail}")
    end = ":7" if has_star else ""
    assert pattern.matches(f"2001:db8::{low:x}{end}")
    assert pattern.matches(f"2001:db8::{high:x}{end}")
    assert pattern.matches(f"2001:db8::{value:x}{end}") == (low <= value <= high)


@given(st.lists(BYTES, min_size=1, max_size=20), BYTES)
def test_a_list_of_last_parts_is_the_list_of_its_addresses(parts: list[int], value: int) -> None:
    short = AddressPattern.parse(f"10.0.0.{{{','.join(map(str, parts))}}}")
    long = AddressPattern.parse(",".join(f"10.0.0.{part}" for part in parts))
    address = f"10.0.0.{value}"
    assert short.matches(address) == long.matches(address) == (value in parts)


def test_a_list_is_bounded() -> None:
    AddressPattern.parse(",".join(["10.0.0.1"] * MAX_LISTED))
    with pytest.raises(ConfigError, match=f"at most {MAX_LISTED} addresses"):
        AddressPattern.parse(",".join(["10.0.0.1"] * (MAX_LISTED + 1)))
    with pytest.raises(ConfigError, match=f"at most {MAX_TEXT} characters"):
        AddressPattern.parse("1" * (MAX_TEXT + 1))


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    try:
        pattern = AddressPattern.parse(text)
    except ConfigError:
        return
    assert AddressPattern.parse(str(pattern)) == pattern
    pattern.matches("10.0.0.1")
