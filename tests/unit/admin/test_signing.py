"""Which credentials mqadmin signs with, and that it shows no secret."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster

from turbopump.admin.tools_file import BadToolsFile, tools_credentials
from turbopump.auth.signature import Credentials, is_signed_by
from turbopump.protocol.bodies import ClusterInfo
from turbopump.protocol.codes import RequestCode
from turbopump.remoting.router import Answer, Request

SECRET = "Geheim-4711"
TOOLS = f'accessKey: joe\nsecretKey: "{SECRET}"\n'
PORT = 9877


class NameServer:
    """Answers with an empty cluster, and keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[Request[None]] = []

    def __call__(self, request: Request[None]) -> Answer:
        self.asked.append(request)
        return Answer(body=ClusterInfo().encode())

    def signers(self) -> set[str]:
        """Returns whose signatures the requests have; "" for those without one."""
        found = set()
        for request in self.asked:
            command = request.command
            assert command.ext is None or is_signed_by(command, [SECRET]), command.ext
            found.add((command.ext or {}).get("AccessKey", ""))
        self.asked.clear()
        return found


async def signers(town: MemoryCluster, *words: str) -> set[str]:
    server = NameServer()
    address = await town.play(PORT, {RequestCode.GET_BROKER_CLUSTER_INFO: server})
    printed = await town.mqadmin("clusterList", "-n", address, *words)
    await town.played.pop().stop()
    assert printed.status == 0, printed.err
    assert SECRET not in printed.out + printed.err
    return server.signers()


@virtual
async def test_without_credentials_mqadmin_does_not_sign() -> None:
    async with cluster(0) as town:
        assert await signers(town) == {""}


@virtual
async def test_the_option_comes_first_then_the_environment_then_the_file_of_apaches_tools() -> None:
    async with cluster(0) as town:
        town.disk.make_dirs("/home/conf")
        town.disk.write("/home/conf/tools.yml", TOOLS.replace("joe", "tools").encode())
        town.disk.write("/key", f"AccessKey=key\nSecretKey={SECRET}\n".encode())
        town.environ["ROCKETMQ_HOME"] = "/home"
        assert await signers(town) == {"tools"}
        town.environ |= {"TURBOPUMP_ACCESS_KEY": "env", "TURBOPUMP_SECRET_KEY": SECRET}
        assert await signers(town) == {"env"}
        assert await signers(town, "--credentials", "/key") == {"key"}
        assert await signers(town, "--credentials", "/home/conf/tools.yml") == {"tools"}


@virtual
async def test_credentials_that_cannot_be_used_end_the_command_without_showing_them() -> None:
    async with cluster(0) as town:
        town.disk.write("/half", f"SecretKey={SECRET}\n".encode())
        town.disk.write("/half.yml", f"secretKey: {SECRET}\n".encode())
        town.disk.write("/list.yml", f"- {SECRET}\n".encode())
        town.disk.write("/empty.yml", b"# nothing\n")
        words = {
            "/half": "AccessKey is missing",
            "/half.yml": "accessKey is missing",
            "/list.yml": "line 1: must be `key: value`",
            "/empty.yml": "has no accessKey and secretKey",
        }
        for path, told in words.items():
            printed = await town.mqadmin("clusterList", "-n", NAMESRV, "--credentials", path)
            assert printed.status == 2
            assert told in printed.err
            assert path in printed.err
            assert SECRET not in printed.err
        printed = await town.mqadmin("clusterList", "-n", NAMESRV, "--credentials", "/none")
        assert printed.status == 1
        assert "/none" in printed.err


@pytest.mark.parametrize(
    ("text", "name", "secret"),
    [
        ("accessKey: rocketmq2\nsecretKey: 12345678\n", "rocketmq2", "12345678"),
        ("# Apache's\n---\naccessKey: a1 # the name\nsecretKey: '12''34'\nother: 1\n", "a1", "12'34"),
        ('accessKey : "null"\r\nsecretKey: "# no comment: "\r\n', "null", "# no comment: "),
        ("accessKey: user@host\nsecretKey: 9f8a7\n", "user@host", "9f8a7"),
    ],
)
def test_a_tools_file_is_read_as_yaml_reads_it(text: str, name: str, secret: str) -> None:
    assert tools_credentials(text) == Credentials(name, secret)


@pytest.mark.parametrize(
    "text", ["", "# none\n", "accessKey:\nsecretKey:\n", 'accessKey: ""\nsecretKey: ""\n']
)
def test_a_tools_file_without_keys_has_no_credentials(text: str) -> None:
    assert tools_credentials(text) is None


@pytest.mark.parametrize(
    "value",
    [
        *("012345", "0x1F", "1e5", "1_000", "1:30", "2026-01-01", "-5", "+5", ".5", "1.5", "true", "No", "~"),
        *(
            "a: b",
            "[a]",
            "{a: b}",
            "&a",
            "*a",
            "!!str a",
            "|",
            ">",
            "%a",
            "@a",
            "`a",
            '"a',
            "'a",
            '"a\\n"',
            "a b",
        ),
    ],
)
def test_a_value_that_yaml_may_read_as_something_else_must_be_quoted(value: str) -> None:
    with pytest.raises(BadToolsFile, match="line 2: the value of secretKey must be in quotes") as caught:
        tools_credentials(f"accessKey: joe\nsecretKey: {value}\n")
    assert value not in str(caught.value).removesuffix('such as secretKey: "name"')[-40:]
