import pytest

from turbopump.namesrv.config import NamesrvConfig, configure, properties, protected_keys
from turbopump.protocol.conf import ConfigError, pack_properties


def test_apaches_names_set_our_fields() -> None:
    text = "listenPort=19876\norderMessageEnable = true\n# a comment\nkvConfigPath=/data/kv.json\nabc=1\n"
    config, unknown = configure(NamesrvConfig(), text)
    assert (config.listen_port, config.order_message_enable, config.kv_config_path) == (
        19876,
        True,
        "/data/kv.json",
    )
    assert unknown == ["abc"]


def test_keys_of_threads_and_buffers_are_accepted_without_effect() -> None:
    assert configure(NamesrvConfig(), "serverWorkerThreads=8\n") == (NamesrvConfig(), [])


def test_a_configuration_reads_back_from_its_properties() -> None:
    config = NamesrvConfig(listen_port=1, order_message_enable=True, name_servers="a:1;b:2")
    assert configure(NamesrvConfig(), pack_properties(properties(config))) == (config, [])


@pytest.mark.parametrize(
    "line", ["listenPort=x", "listenPort=65536", "listenPort=-1", "orderMessageEnable=yes"]
)
def test_a_value_that_makes_no_sense_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2: " + line.partition("=")[0]):
        configure(NamesrvConfig(), "\n" + line)


def test_protected_keys_are_apaches_and_those_configured() -> None:
    config = NamesrvConfig(config_black_list="listenPort; bindAddress")
    text = "kvConfigPath=/x\nconfigStorePath=/x\nconfigBlackList=\nlistenPort=1\nbindAddress=x\nidle=1\n"
    assert protected_keys(config, text) == [
        *("kvConfigPath", "configStorePath", "configBlackList", "listenPort", "bindAddress"),
    ]


def test_files_lie_below_the_home_as_apaches_do() -> None:
    assert NamesrvConfig.below_home("/home/mq").kv_config_path == "/home/mq/namesrv/kvConfig.json"


TLS = "tlsServerMode=enforcing\ntlsServerCertPath=/pem/cert\ntls.server.keyPassword=hush\n"


def test_tls_is_set_by_our_keys_and_by_the_names_of_apache() -> None:
    config, unknown = configure(NamesrvConfig(), TLS)
    assert (config.tls.mode, config.tls.cert_path, config.tls.key_password) == (
        "enforcing",
        "/pem/cert",
        "hush",
    )
    assert unknown == []


def test_passwords_are_neither_shown_nor_saved() -> None:
    config, _ = configure(NamesrvConfig(), TLS)
    shown = properties(config)
    assert shown["tlsServerMode"] == "enforcing"
    assert "hush" not in repr(config) + str(shown)
    assert configure(NamesrvConfig(), pack_properties(shown))[0].tls.cert_path == "/pem/cert"


@pytest.mark.parametrize("text", ["tlsServerMode=off", "tlsServerMode=enforcing", "tls.enable=yes"])
def test_tls_that_cannot_be_as_configured_stops_the_start(text: str) -> None:
    with pytest.raises(ConfigError):
        configure(NamesrvConfig(), text)


@pytest.mark.parametrize("key", ["tlsServerMode", "tls.server.mode", "tlsServerTrustCertPath", "tls.enable"])
def test_no_request_changes_tls(key: str) -> None:
    assert protected_keys(NamesrvConfig(), f"{key}=disabled\n") == [key]
