import pytest

from turbopump.protocol.addresses import split_list


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
