import re

import pytest

from turbopump.protocol.addresses import has_host_and_port, join_address, split_address, split_list


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b:2", ("a:1", "b:2")),
        ("a:1,b:2", ("a:1", "b:2")),
        (" a:1 ; b:2 , [::1]:3;;", ("a:1", "b:2", "[::1]:3")),
        (" ;, ", ()),
        ("", ()),
    ],
)
def test_both_separators_are_taken(text: str, parts: tuple[str, ...]) -> None:
    assert split_list(text) == parts


@pytest.mark.parametrize(
    ("host", "joined"), [("10.0.0.1", "10.0.0.1:9876"), ("::1", "[::1]:9876"), ("broker", "broker:9876")]
)
def test_a_joined_address_splits_into_its_parts_again(host: str, joined: str) -> None:
    assert join_address(host, 9876) == joined
    assert split_address(joined) == (host, 9876)


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [("a:1", True), ("a:65535", True), ("[::1]:80", True)]
    + [("::1:80", True), ("[fe80::1%eth0]:80", True)]
    + [(text, False) for text in ("a:65536", "a:0", "a:", ":1", "a", "a:-1", "a:\u0663")]
    + [
        (text, False)
        for text in ("::1", "fe80::1", "[::1:80", "::1]:80", "[a]:80", "[]:80", "a:b:1", "a..b:1")
    ],
)
def test_an_address_has_a_host_and_a_port_from_1_to_65535(text: str, is_whole: bool) -> None:
    assert has_host_and_port(text) is is_whole


@pytest.mark.parametrize("address", ["::1:9876", "[::1]:9876"])
def test_brackets_around_an_ipv6_host_may_be_missing_as_in_apache(address: str) -> None:
    assert split_address(address) == ("::1", 9876)


@pytest.mark.parametrize(
    "address",
    [":9876", "[]:9876", "::1", "fe80::1", "[::1:9876", "::1]:9876", "[a]:9876", "a:b:9876", "a:\u0663"],
)
def test_what_has_no_host_or_no_port_is_refused_with_the_text_that_was_given(address: str) -> None:
    with pytest.raises(ValueError, match=r"^an address must be host:port, got " + re.escape(repr(address))):
        split_address(address)
