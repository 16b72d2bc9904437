"""What of a tool's words is a fact, and when two tools agree."""

from __future__ import annotations

from . import mqadmin_facts, printed
from .compare import ABSENT, Difference

CLEAN = printed.Cleaner({"127.0.0.1:9876": "<namesrv>", "/tmp/x/cluster": "<home>", "/tmp/x": "<work>"})
STACK = """\
org.apache.rocketmq.tools.command.SubCommandException: TopicStatusSubCommand command failed
\tat org.apache.rocketmq.tools.command.topic.TopicStatusSubCommand.execute(TopicStatusSubCommand.java:87)
Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 17  DESC: No route
See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.
\t... 5 more
"""


def differ(apache: object, ours: object) -> list[Difference]:
    return list(mqadmin_facts.differences(apache, ours, "step"))


def test_what_another_run_has_otherwise_is_named() -> None:
    text = (
        "ask 127.0.0.1:9876 at 10.1.2.3:4711 2026-11-15 14:02:15,123 1794751341173 0.25 /tmp/x/cluster /tmp/x"
    )
    assert CLEAN.text(text) == "ask <namesrv> at <address> <n> <n> <n> <home> <work>"
    assert CLEAN.line("id  7F00000100003738000000000000FFFF   3 ") == "id <id> 3"
    assert CLEAN.line("{b=2, a=1}") == "{a=1, b=2}"


def test_of_a_stack_the_cause_is_kept() -> None:
    assert CLEAN.lines(STACK) == [
        "<exception>",
        "Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 17 DESC: No route",
    ]


def test_settings_are_compared_one_by_one() -> None:
    lines = ["====<broker>====", "brokerId = 0", "listenPort = 10911"]
    assert printed.settings(lines, "=") == {"====<broker>====": "", "brokerId": "0", "listenPort": "<n>"}


def test_both_tools_may_fail_in_their_own_words_but_not_in_a_servers() -> None:
    apache = CLEAN.lines(STACK)
    assert not differ(apache, {"status": 1, "endless": False, "printed": ["mqadmin: there is no topic x"]})
    refusal = "mqadmin: refused by the name server: TOPIC_NOT_EXIST (17): "
    assert not differ(apache, {"status": 1, "endless": False, "printed": [refusal + "No route"]})
    assert differ(apache, {"status": 1, "endless": False, "printed": [refusal + "something else"]})


def test_one_tool_that_fails_alone_is_a_difference() -> None:
    assert differ(CLEAN.lines(STACK), ["done"])
    assert differ(["done"], {"status": 1, "endless": False, "printed": ["mqadmin: no"]})
    assert not differ(["done"], ["done", "(cut: there is more)"])
    assert differ({"a": "1"}, {}) == [Difference("step / a", "1", ABSENT)]


def test_columns_of_5_are_left_out_where_4_9_is_the_measure() -> None:
    ours = [
        "#Topic #Broker Name #Diff #Inflight #LastTime",
        "many broker-a 0 3 2 1 0 <n>",
        "Consume Diff Total: 1",
    ]
    apache = ["#Topic #Broker Name #Diff #LastTime", "many broker-a 0 3 2 1 <n>", "Diff Total: 1"]
    assert not list(mqadmin_facts.differences_of_4_9(apache, [*ours, "Consume Inflight Total: 0"], "step"))
