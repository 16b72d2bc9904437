from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.namespace import unwrap, wrap

NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)


def test_topics_and_groups_get_the_namespace_in_front_of_their_own_name() -> None:
    assert wrap("shop", "orders") == "shop%orders"
    assert wrap("shop", "%RETRY%billing") == "%RETRY%shop%billing"
    assert wrap("shop", "%DLQ%billing") == "%DLQ%shop%billing"


def test_names_of_the_system_are_never_wrapped() -> None:
    for name in ("TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_anything", "CID_RMQ_SYS_x", "TOOLS_CONSUMER"):
        assert wrap("shop", name) == unwrap("shop", name) == name


def test_without_a_namespace_nothing_changes() -> None:
    assert wrap("", "orders") == unwrap("", "orders") == "orders"


def test_another_namespace_is_not_ours_to_unwrap() -> None:
    assert unwrap("shop", "bar%orders") == "bar%orders"


@given(NAMES, NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_wrapping_twice_is_wrapping_once_and_unwrapping_undoes_it(
    namespace: str, bare: str, prefix: str
) -> None:
    name = prefix + bare
    wrapped = wrap(namespace, name)
    assert wrap(namespace, wrapped) == wrapped
    assert unwrap(namespace, wrapped) == name
