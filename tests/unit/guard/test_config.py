"""Keys of access control, alike for brokers and name servers; secrets are shown nowhere."""

import pytest

from turbopump.auth.signature import Credentials
from turbopump.broker.config import BrokerConfig, ConfigError, load, show
from turbopump.guard.config import KEYS, SECRET_KEYS, UserQuota
from turbopump.namesrv.config import NamesrvConfig, configure, properties, protected_keys, stored_properties
from turbopump.remoting.tls_settings import BY_NAME as TLS_KEYS

SECRET = "wonderful-secret"
USER = f'initAuthenticationUser={{"username":"root","password":"{SECRET}"}}'
INNER = f'innerClientAuthenticationCredentials={{"accessKey":"inner","secretKey":"{SECRET}"}}'
CONF = f"authenticationEnabled=true\n{USER}\n{INNER}\n"


def test_brokers_and_name_servers_read_the_same_keys() -> None:
    broker, (namesrv, unknown) = load(CONF).config, configure(NamesrvConfig(), CONF)
    assert broker.access == namesrv.access
    assert unknown == []
    assert broker.access.initial_user == Credentials("root", SECRET)
    assert broker.access.inner_credentials == Credentials("inner", SECRET)
    assert (broker.access.has_users, broker.access.is_on, BrokerConfig().access.is_on) == (True, True, False)


def test_either_switch_of_5x_is_both() -> None:
    assert load("authorizationEnabled=true").config.access.has_users


def test_secrets_are_in_no_text_of_a_configuration() -> None:
    broker, (namesrv, _) = load(CONF).config, configure(NamesrvConfig(), CONF)
    shown = [repr(broker), repr(namesrv), str(show(broker)), str(properties(namesrv))]
    assert not [text for text in shown if SECRET in text]
    for key in SECRET_KEYS - {"authKey"}:
        assert show(broker)[key] == properties(namesrv)[key] == "******"


@pytest.mark.parametrize(
    "line",
    [
        f'initAuthenticationUser={{"username":"root","passwd":"{SECRET}"}}',
        f"initAuthenticationUser=root/{SECRET}",
        f"innerClientAuthenticationCredentials=[{SECRET!r}]",
        f"authKey={SECRET}",
    ],
)
def test_the_error_about_a_bad_secret_does_not_show_it(line: str) -> None:
    for read in (load, lambda text: configure(NamesrvConfig(), text)):
        with pytest.raises(ConfigError, match="got another text") as raised:
            read(line)
        assert SECRET not in str(raised.value)


def test_a_class_that_apache_does_not_ship_is_refused() -> None:
    ours = "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider"
    assert load(f"authenticationProvider={ours}").config.access.provider == ours
    with pytest.raises(ConfigError, match=r"must be DefaultAuthenticationProvider, got 'com\.example\.Mine'"):
        load("authenticationProvider=com.example.Mine")


def test_quotas_and_codes_are_read_and_shown_alike() -> None:
    conf = "authUserQuotas=alice:bytes=10,requests=2;*:connections=3\nauthenticationWhitelist=105, 34\n"
    config = load(conf).config
    assert dict(config.access.quotas) == {"alice": UserQuota(10, 2, 0), "*": UserQuota(0, 0, 3)}
    assert config.access.unchecked == {105, 34}
    shown = show(config)
    again = load("".join(f"{key}={shown[key]}\n" for key in ("authUserQuotas", "authenticationWhitelist")))
    assert again.config.access == config.access
    for bad in ("alice", "alice:bytes=x", "alice:speed=1", "alice:bytes=1,bytes=2", "a:bytes=1;a:bytes=2"):
        with pytest.raises(ConfigError):
            load(f"authUserQuotas={bad}")


def test_accounts_of_4x_and_users_of_5x_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="line 1: aclEnable: must be false with authenticationEnabled"):
        load("aclEnable=true\nauthenticationEnabled=true\nauthAccountsPath=/conf")


def test_requests_about_users_are_on_no_white_list() -> None:
    for key in ("authenticationWhitelist", "authorizationWhitelist"):
        with pytest.raises(
            ConfigError, match=f"{key}: must not have requests about users or accounts, got 3001"
        ):
            load(f"{key}=105,3001,3002")


def test_the_home_of_apache_has_the_account_files() -> None:
    config = load("aclEnable=true", {"ROCKETMQ_HOME": "/opt/rocketmq"}).config
    assert config.access.accounts_dir == "/opt/rocketmq/conf"


def test_request_318_changes_no_key_of_access_control_and_tls() -> None:
    for key in (*KEYS, *TLS_KEYS, "nameServerReads", "clusterName", "kvConfigPath", "rocketmqHome"):
        assert protected_keys(NamesrvConfig(), f"{key}=x") == [key]


def test_a_name_server_writes_no_secret_that_was_not_in_its_file() -> None:
    config, _ = configure(NamesrvConfig(), CONF)
    assert SECRET not in str(stored_properties(config, b""))
    kept = stored_properties(config, INNER.encode())
    assert SECRET in kept["innerClientAuthenticationCredentials"]
    assert kept["initAuthenticationUser"] == ""
