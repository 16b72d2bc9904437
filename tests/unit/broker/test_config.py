import contextlib
import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.broker import config as configuration
from turbopump.broker import settings
from turbopump.broker.config import BrokerConfig, ConfigError, get, load, parse_properties, printed, show
from turbopump.broker.readers import INTERVAL, MILLISECONDS

HERE = Path(__file__).parent

PLACES = (
    "brokerIP1 brokerIP2 brokerName haListenPort listenPort namesrvAddr storePathCommitLog storePathRootDir"
)

QUICKSTART = b"""
# as in Apache's conf/broker.conf
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def test_apaches_own_sample_file_needs_no_word() -> None:
    loaded = load(QUICKSTART)
    assert loaded.warnings == ()
    assert loaded.config.identity.broker_name == "broker-a"
    assert loaded.config.store.file_reserved_hours == 48


def test_flags_beat_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    text = b"listenPort=1000\nbrokerName=file\nregionId=file\n"
    environ = {
        "TURBOPUMP_BROKER_NAME": "environment",
        "TURBOPUMP_REGION_ID": "environment",
        "HOME": "/home/me",
    }
    config = load(text, environ, {"regionId": "flag"}).config
    assert config.listening.port == 1000
    assert config.identity.broker_name == "environment"
    assert config.sending.region_id == "flag"
    assert config.identity.cluster_name == "DefaultCluster"
    assert config.store.root_dir == "/home/me/store"


def test_the_environment_names_the_name_servers_as_for_apaches_tools() -> None:
    environ = {"NAMESRV_ADDR": "a:9876;b:9876"}
    assert load(b"namesrvAddr=c:1", environ).config.name_servers.addresses == ("a:9876", "b:9876")
    environ["TURBOPUMP_NAMESRV_ADDR"] = "d:2"
    assert load(b"", environ).config.name_servers.addresses == ("d:2",)
    assert load(b"", environ, {"namesrvAddr": "e:3"}).config.name_servers.addresses == ("e:3",)


def test_a_broker_without_a_name_is_called_after_its_host() -> None:
    assert load(host_name="machine-7").config.identity.broker_name == "machine-7"


def test_old_spellings_still_set_the_file_sizes() -> None:
    config = load(b"mapedFileSizeCommitLog=1048576\nmapedFileSizeConsumeQueue=2000").config
    assert config.store.commit_log_file_size == 1_048_576
    assert config.store.consume_queue_file_size == 2_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listenPort=99999", "line 2: listenPort: must be a port from 0 to 65535, got '99999'"),
        ("listenPort=", "line 2: listenPort: must be a port from 0 to 65535, got ''"),
        (
            "autoCreateTopicEnable=yes",
            "line 2: autoCreateTopicEnable: must be true or false, got 'yes'",
        ),
        (
            "flushDiskType=SYNC",
            "line 2: flushDiskType: must be ASYNC_FLUSH or SYNC_FLUSH, got 'SYNC'",
        ),
        ("deleteWhen=04;25", "line 2: deleteWhen: .* several separated by ;"),
        ("namesrvAddr=localhost", "line 2: namesrvAddr: must be host:port.*, got 'localhost'"),
        ("messageDelayLevel=1s  5s", "line 2: messageDelayLevel: .* separated by one space"),
        ("messageDelayLevel=1s 5", "line 2: messageDelayLevel: must be times such as"),
        ("messageDelayLevel=-1s", "line 2: messageDelayLevel: "),
        ("storePathCommitLog=/a,/b", "line 2: storePathCommitLog: .* one directory"),
        ("brokerRole=SLAVE", "brokerId: a slave must have an id above 0, got 0"),
        ("enableDLegerCommitLog=true", "dLegerGroup must be the name of the group, got nothing"),
        (
            "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-a:1\ndLegerSelfId=n1",
            "line 5: dLegerSelfId: dLegerSelfId must be one of n0, got 'n1'",
        ),
        (
            "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=one-a:1\ndLegerSelfId=one",
            "line 5: dLegerSelfId: dLegerSelfId must be a letter and a number, like n0, got 'one'",
        ),
        ("aclEnable=true", "line 2: aclEnable: needs the accounts: set authAccountsPath"),
        ("minInSyncReplicas=3", "line 2: minInSyncReplicas: must not be more than inSyncReplicas"),
        ("brokerId=1", "line 2: brokerId: a master must have the id 0, got 1"),
        ("listenPort=2", "line 2: listenPort: the fast port"),
        ("storePathRootDir=", "line 2: storePathRootDir: must be one directory, got ''"),
        ("flushDiskTyp=SYNC_FLUSH", r"line 2: flushDiskTyp: unknown key; did you mean flushDiskType\?"),
        ("brokerIp1=10.0.0.1", r"line 2: brokerIp1: unknown key; did you mean brokerIP1\?"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("brokerName=a\n" + text)


def test_a_bad_flag_or_variable_is_named_as_such() -> None:
    with pytest.raises(
        ConfigError, match="environment variable TURBOPUMP_LISTEN_PORT: must be a port from 0"
    ):
        load(b"", {"TURBOPUMP_LISTEN_PORT": "x"})
    with pytest.raises(ConfigError, match="flag for listenPort: must be a port from 0"):
        load(b"", {}, {"listenPort": "x"})


def test_features_that_are_off_may_be_said_to_be_off() -> None:
    assert load(b"enableDLegerCommitLog=false\naclEnable = FALSE\ntotalReplicas=1").warnings == ()


def test_keys_without_effect_are_named_once_together() -> None:
    warnings = load(b"sendMessageThreadPoolNums=128\nuseReentrantLockWhenPutMessage=true").warnings
    assert warnings == (
        "keys without effect here: sendMessageThreadPoolNums, useReentrantLockWhenPutMessage",
    )


@pytest.mark.parametrize(("key", "least_ms"), sorted(settings.LEAST_PLAUSIBLE_MS.items()))
def test_a_value_in_seconds_where_milliseconds_are_meant_is_a_warning_in_words(
    key: str, least_ms: int
) -> None:
    seconds = min(10, least_ms - 1)
    (warning,) = load(f"{key}={seconds}").warnings
    assert warning == (
        f"line 1: {key}={seconds} means {seconds} milliseconds, not seconds; for {seconds} seconds write "
        f"{key}={seconds}000"
    )
    assert load(f"{key}={least_ms}").warnings == ()


def test_every_time_in_milliseconds_has_a_least_plausible_value_below_its_default() -> None:
    in_ms = {key for key, row in settings.SETTINGS.items() if row.reader in (INTERVAL, MILLISECONDS)}
    assert set(settings.LEAST_PLAUSIBLE_MS) | settings.ANY_MS == in_ms
    for key, least_ms in settings.LEAST_PLAUSIBLE_MS.items():
        assert 2 <= least_ms <= get(BrokerConfig(), settings.SETTINGS[key].path), key


def test_a_ratio_of_zero_makes_all_history_old() -> None:
    assert load(b"accessMessageInMemoryMaxRatio=0").config.store.access_in_memory_ratio == 0
    with pytest.raises(ConfigError, match="percent from 0 to 100"):
        load(b"accessMessageInMemoryMaxRatio=-1")


def test_keys_of_features_to_come_are_named_with_their_lines_a_feature_at_a_time() -> None:
    text = b"useStaticSubscription=true\nreviveInterval=1\nreviveScanTime=1\n"
    assert load(text).warnings == (
        "not supported yet, no effect: reviveInterval in line 2, reviveScanTime in line 3 (POP consumption)",
        "not supported yet, no effect: useStaticSubscription in line 1 (subscriptions kept by the broker)",
    )


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() -> None:
    assert load(b"\nbrokerColour=red\nxyzzy=1\n").warnings == (
        "line 2: brokerColour: unknown key, no effect (the nearest known one is brokerRole)",
        "line 3: xyzzy: unknown key, no effect",
    )


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_what_apaches_broker_prints_about_itself_can_be_loaded(version: str) -> None:
    loaded = load((HERE / f"printed-{version}.conf").read_bytes())
    assert loaded.config.store.root_dir == "/data/store"
    assert [warning for warning in loaded.warnings if "unknown" in warning] == []
    ours = show(BrokerConfig())
    differences = {key for key, text in show(loaded.config).items() if text != ours[key]}
    assert differences <= set(PLACES.split()) | {
        "flushConsumeQueueThoroughInterval",
        "registerBrokerTimeoutMills",
        "transactionCheckInterval",
        "timerMaxDelaySec",
        "recallMessageEnable",
    }


def test_a_key_set_twice_is_named_and_the_last_one_counts() -> None:
    loaded = load(b"brokerName=a\n\nbrokerName=b")
    assert loaded.config.identity.broker_name == "b"
    assert loaded.warnings == ("line 3: brokerName: already set in line 1; the last one counts",)


@pytest.mark.parametrize(
    ("given_ms", "used_ms"), [(0, 10_000), (9_999, 10_000), (45_000, 45_000), (60_001, 60_000)]
)
def test_the_registration_period_is_kept_between_10_and_60_seconds(given_ms: int, used_ms: int) -> None:
    assert load(f"registerNameServerPeriod={given_ms}").config.name_servers.period_ms == used_ms


def test_every_key_that_apache_reads_is_in_exactly_one_table() -> None:
    known = Counter(settings.known_keys())
    assert [key for key, count in known.items() if count > 1] == []
    assert set(known) - set(settings.OURS) == set((HERE / "apache_keys.txt").read_text().split())


def test_no_two_keys_share_an_environment_variable() -> None:
    variables = Counter(settings.variable(key) for key in settings.known_keys())
    assert max(variables.values()) == 1
    assert settings.variable("checkCRCOnRecover") == "TURBOPUMP_CHECK_CRC_ON_RECOVER"
    assert settings.variable("brokerIP1") == "TURBOPUMP_BROKER_IP1"


def test_every_key_sets_a_field_that_exists_and_says_what_it_is_for() -> None:
    whys = dict(configuration.paths(BrokerConfig()))
    for key, row in settings.SETTINGS.items():
        assert row.path in whys, key
        assert row.why or whys[row.path], key


def test_what_is_printed_can_be_loaded_again() -> None:
    loaded = load(
        QUICKSTART + b"deleteWhen=04;16\nnamesrvAddr=a:1;b:2\nbrokerIP1=10.0.0.1\nbrokerIP2=10.0.0.1"
    )
    assert load(printed(loaded.config)).config == loaded.config
    assert set(show(loaded.config, important_only=True)) < set(show(loaded.config))


def test_one_key_can_be_changed_in_a_configuration() -> None:
    config = configuration.change(BrokerConfig(), "brokerPermission", "4")
    assert config.topics.permission == 4
    with pytest.raises(ConfigError, match="brokerPermission: must be a whole number from 0 to 7, got '9'"):
        configuration.change(config, "brokerPermission", "9")


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(settings.known_keys())), st.text(max_size=12)).map(
            lambda pair: f"{pair[0]}={pair[1]}"
        ),
        max_size=5,
    )
)
def test_any_text_for_known_keys_loads_or_is_a_configuration_error(lines: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        load("\n".join(lines))


def test_the_page_about_configuration_is_current() -> None:
    script = HERE.parents[2] / "scripts" / "configuration_page.py"
    spec = importlib.util.spec_from_file_location("configuration_page", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run python scripts/configuration_page.py"


def test_the_parser_is_at_hand_for_fuzzing() -> None:
    assert parse_properties(b"a=b")[0].key == "a"


def test_open_transactions_are_asked_about_every_30_s_by_default() -> None:
    """As 5.x; 4.x asked every 60 s. A file may say otherwise, in milliseconds."""
    assert load("").config.transactions.check_interval_ms == 30_000
    assert load("transactionCheckInterval=60000").config.transactions.check_interval_ms == 60_000


TLS_FILES = b"tlsServerCertPath=/pem/cert\ntlsServerTrustCertPath=/pem/ca\n"


def test_tls_is_set_by_our_keys_and_by_the_names_of_apache() -> None:
    ours = load(TLS_FILES + b"tlsServerMode=enforcing\ntlsEnable=true\ntlsServerKeyPassword=hush")
    apache = load(
        b"tls.server.certPath=/pem/cert\ntls.server.trustCertPath=/pem/ca\ntls.server.mode=enforcing\n"
        b"useTLS=true\ntls.server.keyPassword=hush"
    )
    assert ours.config.tls == apache.config.tls
    assert ours.config.tls.mode == "enforcing"
    assert ours.config.tls.enabled
    assert ours.warnings == apache.warnings == ()


def test_no_password_of_a_key_is_printed() -> None:
    assert "hush" not in printed(load(TLS_FILES + b"tlsServerKeyPassword=hush").config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"tlsServerMode=enforced", "line 1: tlsServerMode: must be disabled or permissive or enforcing"),
        (b"tlsServerMode=enforcing", "line 1: tlsServerMode: enforcing needs a certificate"),
        (b"\ntls.server.certpath=/x", "line 2: tls.server.certpath: unknown key"),
    ],
)
def test_tls_that_cannot_be_as_configured_stops_the_start(text: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(text)


def test_a_file_of_tls_settings_may_have_what_the_keys_lack() -> None:
    assert load(b"tlsServerMode=enforcing\ntlsConfigFile=/etc/tls.properties").config.tls.config_file
