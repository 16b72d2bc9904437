import pytest

from turbopump.filter import BadTags, tags_of, text_of, wanted_tags


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", ()),
        ("", ()),
        (" * ", ()),
        ("paid", ("paid",)),
        ("paid || shipped", ("paid", "shipped")),
        (" paid||shipped || ", ("paid", "shipped")),
        ("a,b", ("a,b",)),
    ],
)
def test_two_bars_separate_tags_and_a_star_is_every_message(expression, tags):
    assert tags_of(expression) == wanted_tags(expression) == tags


@pytest.mark.parametrize("expression", ["||", " || ", "a || *", "* || a"])
def test_what_would_match_nothing_or_not_what_it_seems_is_refused(expression):
    with pytest.raises(BadTags, match=r"tags such as a \|\| b"):
        wanted_tags(expression)


def test_several_expressions_are_one_choice():
    assert wanted_tags(["a", "b || a", "c"]) == ("a", "b", "c")
    assert wanted_tags([]) == ()


def test_the_text_of_tags_comes_back():
    assert text_of(["a", "b"]) == "a || b"
    assert tags_of(text_of(())) == ()
