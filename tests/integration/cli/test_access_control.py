"""Servers with access control as real processes, and clients with and without credentials."""

import json
import stat
from pathlib import Path

import pytest
from tests.integration.cli.conftest import Home
from tests.integration.cli.server_kit import BROKER_CONF, NAMESRV_CONF, Write

import turbopump
from turbopump.errors import SendFailed

ROOT, INNER, ALICE = (
    ("root", "root-secret-word"),
    ("inner", "inner-secret-word"),
    ("alice", "alice-secret-word"),
)
SECRETS = [secret for _, secret in (ROOT, INNER, ALICE)]
ACCESS = f"""
authenticationEnabled = true
authorizationEnabled = true
initAuthenticationUser = {json.dumps({"username": ROOT[0], "password": ROOT[1]})}
innerClientAuthenticationCredentials = {json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]})}
"""


@pytest.fixture
def address(home: Home, write: Write) -> str:
    """Name server with guarded changes, and a guarded broker that registers at it."""
    values = f"kvConfigPath = {home.path}/namesrv/kvConfig.json\n"
    namesrv = home.start("mqnamesrv", "-c", write("namesrv.conf", NAMESRV_CONF + values + ACCESS))
    found = namesrv.wait_for(r"^The Name Server boot success\. serializeType=JSON, address (\S+)$")[1]
    broker = home.start("mqbroker", "-n", found, "-c", write("broker.conf", BROKER_CONF + ACCESS))
    broker.wait_for("boot success")
    return found


def test_only_those_with_credentials_and_rights_send(address: str, home: Home) -> None:
    with turbopump.Producer("PG", name_servers=address, access_key=ROOT[0], secret_key=ROOT[1]) as producer:
        producer.send(turbopump.Message("T", b"of root"))
    for credentials in ({}, {"access_key": ROOT[0], "secret_key": "guessed"}):
        with (
            turbopump.Producer("PG", name_servers=address, **credentials) as producer,
            pytest.raises(SendFailed, match=r"username cannot be null|check signature failed"),
        ):
            producer.send(turbopump.Message("T", b"of nobody"))
    files = {path.name: path for path in (home.path / "store/config").iterdir()}
    for name in ("users.json", "users.key", "access-audit.jsonl"):
        assert stat.S_IMODE(files[name].stat().st_mode) == 0o600


def test_secrets_are_in_no_file_of_the_servers_and_in_nothing_they_print(address: str, home: Home) -> None:
    with turbopump.Producer("PG", name_servers=address, access_key=ROOT[0], secret_key=ROOT[1]) as producer:
        producer.send(turbopump.Message("T", b"of root"))
    for server in reversed(home.servers):
        assert server.stop() == 0
    written = [path for path in Path(home.path).rglob("*") if path.is_file() and path.suffix != ".conf"]
    assert [path.name for path in written if path.name == "broker.log"]
    for path in written:
        data = path.read_bytes()
        assert not [secret for secret in SECRETS if secret.encode() in data], path
    printed = "".join(line for server in home.servers for line in server.lines)
    assert not [secret for secret in SECRETS if secret in printed]


def test_a_configuration_file_with_secrets_that_others_can_read_is_named(home: Home, write: Write) -> None:
    path = write("broker.conf", BROKER_CONF + ACCESS)
    Path(path).chmod(0o644)
    broker = home.start("mqbroker", "-c", path)
    broker.wait_for("boot success")
    broker.stop()
    log = (home.path / "logs/rocketmqlogs/broker.log").read_text()
    assert f"{path} has secrets and can be read by every user of this machine: chmod 600" in log


def test_accounts_without_a_file_stop_the_start_with_one_line(home: Home, write: Write) -> None:
    conf = write("broker.conf", f"{BROKER_CONF}aclEnable=true\nauthAccountsPath={home.path}/nothing\n")
    ended = home.run("mqbroker", "-c", conf)
    assert ended.returncode != 0
    assert f"{home.path}/nothing/plain_acl.yml does not exist" in ended.stderr
    assert "Traceback" not in ended.stderr


def signed_by(home: Home, who: tuple[str, str]) -> None:
    home.environment["TURBOPUMP_ACCESS_KEY"], home.environment["TURBOPUMP_SECRET_KEY"] = who


def test_auth_explain_says_what_a_user_may_do_at_every_server(address: str, home: Home) -> None:
    signed_by(home, ROOT)
    home.environment["NAMESRV_ADDR"] = address
    (broker,) = json.loads(home.run("mqadmin", "clusterList", "--json").stdout)["brokers"]
    at = ("-b", broker["address"])
    assert home.run("mqadmin", "createUser", *at, "-u", ALICE[0], "-p", ALICE[1]).returncode == 0
    granted = ("-s", "User:alice", "-r", "Topic:orders*", "-a", "Pub", "-d", "Allow")
    assert home.run("mqadmin", "createAcl", *at, *granted).returncode == 0
    allowed = home.run("turbopump", "auth", "explain", "alice", "Pub", "Topic:orders")
    assert (allowed.returncode, allowed.stderr) == (0, "")
    assert allowed.stdout.splitlines() == [
        f"{broker['address']}: allowed. User:alice may Pub on Topic:orders from 127.0.0.1: "
        "decided by Custom Allow Pub on Topic:orders*",
        "  Custom Allow Pub on Topic:orders*: decides",
    ]
    denied = home.run("turbopump", "auth", "explain", "alice", "Sub", "Topic:orders", "--json")
    assert denied.returncode == 3
    document = json.loads(denied.stdout)
    assert document["allowed"] is False
    assert document["servers"][0]["server"] == broker["address"]
    assert document["servers"][0]["lookedAt"] == ["Custom Allow Pub on Topic:orders*: not for this action"]
    unknown = home.run("turbopump", "auth", "explain", "alice", "Pub", "Topic:orders", "--server", address)
    assert unknown.returncode == 3
    assert "there is no such user" in unknown.stdout
    signed_by(home, ALICE)
    refused = home.run("turbopump", "auth", "explain", "root", "Pub", "Topic:orders")
    assert refused.returncode == 1
    assert "refuses: User:alice has no permission to access Cluster:" in refused.stderr
    assert not [secret for secret in SECRETS if secret in allowed.stdout + denied.stdout + unknown.stdout]


def test_auth_explain_of_a_server_without_access_control_says_so(home: Home) -> None:
    home.up()
    found = home.run("turbopump", "auth", "explain", "alice", "Pub", "Topic:orders")
    assert found.returncode == 1
    assert "it has no access control, so everything is allowed" in found.stderr
    wrong = home.run("turbopump", "auth", "explain", "alice")
    assert wrong.returncode == 2
    shown = home.run("turbopump", "auth", "explain", "--help")
    assert "turbopump auth explain billing Sub Topic:orders" in shown.stdout
