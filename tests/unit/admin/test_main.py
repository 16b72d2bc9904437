"""Command names, help, exit statuses, and the sources of name servers."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster

from turbopump.admin.commands import AREAS, BY_NAME
from turbopump.admin.main import AdminEnvironment, run
from turbopump.admin.unsupported import UNSUPPORTED
from turbopump.runtime.chance import Chance


@virtual
async def test_without_a_word_all_commands_are_listed() -> None:
    async with cluster(brokers=0) as town:
        printed = await town.mqadmin()
        assert printed.status == 0
        assert printed.lines[0] == "The most commonly used mqadmin commands are:"
        assert len(printed.lines) == 4 + sum(map(len, AREAS.values()))
        assert (await town.mqadmin("help")).out == printed.out


@pytest.mark.parametrize("name", sorted(BY_NAME))
@virtual
async def test_every_command_explains_itself(name: str) -> None:
    async with cluster(brokers=0) as town:
        asked = await town.mqadmin("help", name)
        assert asked.status == 0
        assert asked.lines[0].startswith(f"usage: mqadmin {BY_NAME[name].name} ")
        assert (await town.mqadmin(name, "-h")).out == asked.out


@pytest.mark.parametrize("name", sorted(BY_NAME))
@virtual
async def test_an_unknown_or_missing_option_is_wrong_use(name: str) -> None:
    async with cluster(brokers=0) as town:
        unknown = await town.mqadmin(name, "--frobnicate")
        assert unknown.status == 2
        assert unknown.err.startswith("there is no option --frobnicate; `mqadmin help ")
        command = BY_NAME[name]
        if command.one_of or command.any_of or any(option.is_required for option in command.options):
            missing = await town.mqadmin(name)
            assert missing.status == 2
            assert missing.err.startswith("missing: -")


@virtual
async def test_names_are_read_in_any_case_and_a_near_miss_is_told() -> None:
    async with cluster() as town:
        assert (await town.mqadmin("TOPICLIST")).status == 0
        missed = await town.mqadmin("topicLits")
        assert (missed.status, missed.err) == (2, "there is no command topicLits, perhaps topicList?")


@virtual
async def test_the_name_server_comes_from_the_option_or_the_environment() -> None:
    async with cluster() as town:
        town.environ["NAMESRV_ADDR"] = "127.0.0.1:9999"
        nobody = await town.mqadmin("topicList")
        assert nobody.status == 1
        assert nobody.err.startswith("127.0.0.1:9999 does not answer: ")
        several = await town.mqadmin("topicList", "-n", "127.0.0.1:9999; 127.0.0.1:9876")
        assert several.status == 0
        broken = await town.mqadmin("topicList", "--namesrvAddr", "nowhere")
        assert (broken.status, broken.err) == (2, "-n: an address must be host:port, got 'nowhere'")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "topicList -n 127.0.0.1:99999",
            "-n: an address must be host:port with a port of at most 65535, got '127.0.0.1:99999'",
        ),
        ("topicList -n a..b:9876", "-n: an address must be host:port, got 'a..b:9876'"),
        ("sendMessage -t a\udcff -p x", r"-t (--topic) must be text in UTF-8, got 'a\udcff'"),
        ("sendMessage -t t -p a\udcff", r"-p (--body) must be text in UTF-8, got 'a\udcff'"),
        (f"sendMessage -t t -p x -c {'a' * 40_000}", "the properties with tags and keys must have"),
    ],
)
@virtual
async def test_what_no_server_could_take_is_wrong_use(words: str, line: str) -> None:
    async with cluster() as town:
        printed = await town.mqadmin(*words.split())
        assert printed.status == 2
        assert printed.err.startswith(line)
        assert len(printed.err.splitlines()) == 1


@virtual
async def test_a_word_without_an_option_is_named_and_ignored() -> None:
    async with cluster() as town:
        printed = await town.mqadmin("topicList", "true")
        assert (printed.status, printed.err) == (0, "'true' belongs to no option and is ignored")


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
@virtual
async def test_a_command_without_its_feature_says_so(name: str) -> None:
    async with cluster(brokers=0) as town:
        printed = await town.mqadmin(name, "-c", "DefaultCluster")
        assert printed.status == 1
        assert printed.out == ""
        assert " is not supported: it needs " in printed.err
        assert name not in BY_NAME


@virtual
async def test_a_reader_that_has_seen_enough_is_not_told_as_a_failure() -> None:
    async with cluster() as town:

        def closed(text: str) -> None:
            raise BrokenPipeError(32, "Broken pipe")

        said: list[str] = []
        environment = AdminEnvironment(
            town.network, town.clock, town.disk, Chance(1), {}, closed, said.append
        )
        with pytest.raises(BrokenPipeError):
            await run(["topicList"], environment)
        assert said == []


APACHE_4_9 = """
    updateTopic deleteTopic updateSubGroup deleteSubGroup updateBrokerConfig updateTopicPerm topicRoute
    topicStatus topicClusterList brokerStatus queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset
    queryMsgTraceById printMsg printMsgByQueue sendMsgStatus brokerConsumeStats producerConnection
    consumerConnection consumerProgress consumerStatus cloneGroupOffset producer clusterList topicList
    updateKvConfig deleteKvConfig wipeWritePerm addWritePerm resetOffsetByTime skipAccumulatedMessage
    updateOrderConf cleanExpiredCQ deleteExpiredCommitLog cleanUnusedTopic startMonitoring statsAll allocateMQ
    checkMsgSendRT clusterRT getNamesrvConfig updateNamesrvConfig getBrokerConfig getConsumerConfig queryCq
    sendMessage consumeMessage exportMetadata exportConfigs exportMetrics
"""
"""Without those of access control."""


def test_every_command_of_apache_is_here() -> None:
    assert {name.lower() for name in APACHE_4_9.split()} <= BY_NAME.keys()
    assert not BY_NAME.keys() & UNSUPPORTED.keys()


def test_a_command_has_no_two_options_of_one_name() -> None:
    for command in BY_NAME.values():
        own = (*command.options, *command.one_of, *command.any_of)
        for names in ([option.short for option in own if option.short], [option.long for option in own]):
            assert len(names) == len(set(names)), command.name
