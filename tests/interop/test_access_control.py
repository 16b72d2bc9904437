"""Apache's Java clients and mqadmin, with credentials and without, against guarded servers of ours."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.conftest import Home
from tests.integration.cli.server_kit import BROKER_CONF, NAMESRV_CONF

from . import artifacts

pytestmark = pytest.mark.interop

ROOT, INNER, APP = ("root", "root-secret-word"), ("inner", "inner-secret-word"), ("app", "app-secret-word")
USERS = f"""
authenticationEnabled = true
authorizationEnabled = true
initAuthenticationUser = {json.dumps({"username": ROOT[0], "password": ROOT[1]})}
innerClientAuthenticationCredentials = {json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]})}
"""
ACCOUNTS = f"""
accounts:
- {{accessKey: administrator, secretKey: {ROOT[1]}, admin: true}}
- {{accessKey: application, secretKey: {APP[1]}, defaultGroupPerm: SUB, topicPerms: ["orders=PUB|SUB"]}}
"""
JAVA_LIMIT_S = 240


class World:
    """A name server and a broker with access control, and Apache's programs to ask them."""

    def __init__(self, home: Home, broker_conf: str) -> None:
        self.home = home
        values = f"kvConfigPath = {home.path}/namesrv/kvConfig.json\n"
        self.namesrv = self._start("mqnamesrv", NAMESRV_CONF + values + USERS, r"address (\S+)$")
        ready = r"broker-x, (127\.0\.0\.1:\d+)\] boot"
        self.broker = self._start("mqbroker", BROKER_CONF + broker_conf, ready)

    def _start(self, program: str, conf: str, ready: str) -> str:
        path = self.home.path / f"{program}.conf"
        path.write_text(conf)
        words = ("-n", self.namesrv) if program == "mqbroker" else ()
        return self.home.start(program, "-c", str(path), *words).wait_for(ready)[1]

    def java(self, classes: str, *words: str) -> str:
        options = (*artifacts.JAVA_OPTIONS, f"-Drocketmq.home.dir={self.home.path}")
        environment = {**os.environ, "HOME": str(self.home.path), "ROCKETMQ_HOME": str(self.home.path)}
        done = subprocess.run(
            [artifacts.tool("java", "Java"), *options, "-cp", classes, *words],
            **{"capture_output": True, "text": True, "env": environment, "timeout": JAVA_LIMIT_S},
        )
        return done.stdout + done.stderr

    def signing(self, version: str, who: tuple[str, str], topic: str, group: str) -> list[str]:
        printed = self.java(artifacts.access_programs(version), "Signing", self.namesrv, *who, topic, group)
        words = ("sent", "consumed", "found", "failed")
        return [line for line in printed.splitlines() if line.startswith(words)]

    def mqadmin(self, version: str, who: tuple[str, str], *words: str) -> str:
        (self.home.path / "conf").mkdir(exist_ok=True)
        (self.home.path / "conf/logback_tools.xml").write_text("<configuration/>")
        (self.home.path / "conf/tools.yml").write_text(f"accessKey: {who[0]}\nsecretKey: {who[1]}\n")
        return self.java(
            artifacts.tools_jars(version), "org.apache.rocketmq.tools.command.MQAdminStartup", *words
        )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    for server in made.servers:
        server.process.kill()
        server.process.wait()


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_java_clients_and_mqadmin_of_5x_with_users_and_policies(home: Home, version: str) -> None:
    world = World(home, USERS)
    tool, broker = "5.5.0", world.broker

    def admin(*words: str) -> str:
        return world.mqadmin(tool, ROOT, *words)

    assert "create user to" in admin("createUser", "-b", broker, "-u", APP[0], "-p", APP[1], "-t", "Normal")
    for resource, actions in (("Topic:orders", "Pub,Sub"), ("Group:readers", "Sub")):
        grant = ("-s", f"User:{APP[0]}", "-r", resource, "-a", actions, "-d", "Allow")
        assert "create acl to" in admin("createAcl", "-b", broker, *grant)
    made = admin("updateTopic", "-b", broker, "-t", "orders", "-r", "4", "-w", "4")
    assert "success" in made
    assert world.signing(version, APP, "orders", "readers") == ["sent", "consumed true", "found 1"]
    assert world.signing(version, ROOT, "orders", "others") == ["sent", "consumed true", "found 2"]
    denied = world.signing(version, APP, "payments", "readers")
    assert "has no permission to access Topic:payments" in denied[0]
    assert "check signature failed" in world.signing(version, (APP[0], "guessed"), "orders", "readers")[0]
    assert "username cannot be null" in world.signing(version, ("", ""), "orders", "readers")[0]
    users = admin("listUser", "-b", broker)
    assert APP[0] in users
    assert not [secret for _, secret in (ROOT, INNER, APP) if secret in users]
    assert "[Pub, Sub]" in admin("getAcl", "-b", broker, "-s", f"User:{APP[0]}")
    assert "has no permission" in world.mqadmin(tool, APP, "listUser", "-b", broker)
    wiped = world.mqadmin(tool, APP, "wipeWritePerm", "-n", world.namesrv, "-b", "broker-x")
    assert "success" not in wiped


def test_java_clients_and_mqadmin_of_4x_with_accounts(home: Home) -> None:
    (home.path / "acl").mkdir()
    (home.path / "plain_acl.yml").write_text(ACCOUNTS)
    inner = next(line for line in USERS.splitlines() if line.startswith("inner"))
    world = World(home, f"aclEnable = true\nauthAccountsPath = {home.path}\n{inner}\n")
    version, broker = "4.9.8", world.broker
    administrator, application = ("administrator", ROOT[1]), ("application", APP[1])

    def admin(*words: str) -> str:
        return world.mqadmin(version, administrator, *words)

    assert "success" in admin("updateTopic", "-b", broker, "-t", "orders", "-r", "4", "-w", "4")
    assert world.signing(version, application, "orders", "readers") == ["sent", "consumed true", "found 1"]
    denied = world.signing(version, application, "payments", "readers")
    assert "No default permission for topic:payments" in denied[0]
    more = ("-a", "newaccount", "-s", "new-secret-word", "-t", "payments=PUB")
    assert "success" in admin("updateAclConfig", "-b", broker, *more)
    sent = world.signing(version, ("newaccount", "new-secret-word"), "payments", "readers")
    assert sent[:2] == ["sent", "consumed false"]  # it may write there, and is in no group
    assert sent[2].startswith("failed")
    assert sent[2].endswith("no message.")
    assert "CODE: 16" in world.mqadmin(version, application, "updateAclConfig", "-b", broker, *more)
    assert "plain_acl.yml" in admin("clusterAclConfigVersion", "-b", broker)
