import pytest
from tests.unit.protocol.kit import readable

from turbopump.protocol import sysflag
from turbopump.protocol.codes import VERSION, RequestCode, version_name
from turbopump.protocol.errors import (
    REFUSALS,
    InvalidParameter,
    KnownRefusal,
    Refused,
    TopicNotFound,
    refusal,
)
from turbopump.protocol.names import check_group, check_topic, is_system_group, is_system_topic, retry_topic


@pytest.mark.parametrize("name", ["T", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250, "a|b-c_d%1"])
def test_topics_within_the_rules_pass(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        (
            "bad topic!",
            "The specified topic: bad topic!, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("T\n", "The specified topic: T\n, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("é", "The specified topic: é, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, f"The specified topic: {'x' * 128}, is longer than topic max length: 127"),
        (
            "%RETRY%" + "g" * 249,
            f"The specified topic: %RETRY%{'g' * 249}, is longer than topic max length: 255",
        ),
    ],
)
def test_topics_against_the_rules_are_refused_in_apaches_words(name: str, remark: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        check_topic(name)
    assert refused.value.remark == remark
    assert refused.value.code == 29


def test_the_words_are_those_of_the_captures() -> None:
    """5.5.0 on creating topics and groups with bad names."""
    seen = 0
    for row, _, command in readable():
        if row.file != "exchanges-5.5.0" or row.part != "resp" or command.code != 29:
            continue
        remark = command.remark or ""
        if remark.startswith("The specified topic"):
            name = remark.removeprefix("The specified topic: ").partition(", ")[0]
            with pytest.raises(InvalidParameter) as refused:
                check_topic("" if "blank" in remark else name)
        elif remark.startswith("The specified group: "):
            with pytest.raises(InvalidParameter) as refused:
                check_group(remark.removeprefix("The specified group: ").partition(", ")[0])
        else:
            continue
        assert refused.value.remark == remark
        seen += 1
    assert seen >= 5


def test_groups_have_at_most_120_characters() -> None:
    check_group("g" * 120)
    with pytest.raises(InvalidParameter, match="longer than group max length: 120"):
        check_group("g" * 121)


def test_system_names_are_known() -> None:
    for name in ("TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
        assert is_system_topic(name)
    assert not is_system_topic(retry_topic("G"))
    assert is_system_group("TOOLS_CONSUMER")
    assert is_system_group("CID_RMQ_SYS_X")
    assert not is_system_group("G")


def test_a_refusal_is_rebuilt_as_its_class() -> None:
    assert isinstance(refusal(17, "gone"), TopicNotFound)
    assert refusal(17, None).remark == ""
    assert type(refusal(604000, "?")) is Refused
    assert str(refusal(17, "gone")) == "TOPIC_NOT_EXIST (17): gone"
    assert str(Refused(604000, "?")) == "604000: ?"


def test_every_known_refusal_has_a_code_of_its_own() -> None:
    assert len(REFUSALS) == len(KnownRefusal.__subclasses__())
    for code, kind in REFUSALS.items():
        assert refusal(code, "x").code == code
        assert type(refusal(code, "x")) is kind


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (-5, "V3_0_0_SNAPSHOT"),
        (0, "V3_0_0_SNAPSHOT"),
        (37, "V3_0_11"),
        (62, "V3_1_8_SNAPSHOT"),
        (121, "V3_4_9"),
        (211, "V3_9_9"),
        (213, "V4_0_0"),
        (232, "V4_1_0_SNAPSHOT"),
        (315, "V4_5_1"),
        (407, "V4_9_7"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (VERSION, "V5_5_0"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (99999, "HIGHER_VERSION"),
    ],
)
def test_versions_have_apaches_names(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name


def test_request_codes_are_unique() -> None:
    assert len({code.value for code in RequestCode}) == len(RequestCode.__members__)


def test_transaction_bits_are_set_apart_from_the_others() -> None:
    flag = sysflag.COMPRESSED | sysflag.PREPARED | sysflag.LZ4
    assert sysflag.transaction_type(flag) == sysflag.PREPARED
    committed = sysflag.with_transaction_type(flag, sysflag.COMMIT)
    assert sysflag.transaction_type(committed) == sysflag.COMMIT
    assert sysflag.compression_kind(committed) == sysflag.LZ4
    assert sysflag.compression_kind(sysflag.COMPRESSED) == sysflag.ZLIB
