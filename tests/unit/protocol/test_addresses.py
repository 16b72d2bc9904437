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
    + [(text, False) for text in ("a:65536", "a:0", "a:", ":1", "a", "a:-1", "a:\u0663")],
)
def test_an_address_has_a_host_and_a_port_from_1_to_65535(text: str, is_whole: bool) -> None:
    assert has_host_and_port(text) is is_whole
