from turbopump.client.group.subscription import Subscription
from turbopump.protocol.hashing import java_hash


def test_a_star_or_nothing_means_everything() -> None:
    for expression in ("*", "", " * "):
        subscription = Subscription("t", expression)
        assert subscription.wants(None)
        assert subscription.wants("a")
        assert (subscription.to_wire().subString, subscription.to_wire().tagsSet) == ("*", [])


def test_tags_are_separated_by_two_bars() -> None:
    subscription = Subscription("t", "A || B||", 7)
    assert [subscription.wants(tag) for tag in ("A", "B", "C", None)] == [True, True, False, False]
    told = subscription.to_wire()
    assert (told.tagsSet, told.codeSet, told.subVersion) == (["A", "B"], [java_hash("A"), java_hash("B")], 7)
