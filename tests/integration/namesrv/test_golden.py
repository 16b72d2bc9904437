"""Apache's brokers register with our name server, byte for byte, and our answers are held against Apache's.

The captured answers of 5.5.0 must be ours, but for the language. Those of 4.9.7 may differ where 5.5.0
answers otherwise: version, remarks, two keys that 4.9 does not have, and unknown codes, to which 4.9 says
nothing.
"""

import json
from typing import Any

import msgspec
import pytest
from tests.integration.namesrv.kit import WIRE, Peer, World, captured, command_in

from turbopump.protocol.command import Command, encode
from turbopump.testing.loop import run_virtual

pytestmark = pytest.mark.skipif(not WIRE.exists(), reason="no captured frames")

OWN_NAMES = ("ns ", "kv ", "route after ", "bin 105", "bin ns ")
TOPIC_LISTS = (206, 224, 304)


def requests_to_name_server(version: str) -> list[dict[str, Any]]:
    rows = [row for row in captured(f"exchanges-{version}") if row["name"].startswith(OWN_NAMES)]
    return sorted(rows, key=lambda row: not row["name"].startswith("bin "))  # those met an untouched table


def registrations(version: str) -> list[dict[str, Any]]:
    return captured(f"register-{version}")


def full_registration(version: str, topics: list[str]) -> Command:
    """The broker's first 103, cut down to the topics it had when the exchanges were captured."""
    command = command_in(bytes.fromhex(registrations(version)[0]["hex"]))
    body = json.loads(command.body)
    wrapper = body["topicConfigSerializeWrapper"]
    known = wrapper["topicConfigTable"]
    template = known["SELF_TEST_TOPIC"]
    wrapper["topicConfigTable"] = {name: known.get(name, {**template, "topicName": name}) for name in topics}
    assert command.ext is not None
    command.ext["bodyCrc32"] = "0"
    command.body = json.dumps(body).encode()
    return command


def like(command: Command, **changes: Any) -> Command:
    """Without what differs between any two servers."""
    plain = {"language": "JAVA", **changes}
    if command.body and "body" not in changes:
        plain["body"] = msgspec.json.encode(parsed(command.body))
    return msgspec.structs.replace(command, **plain)


def parsed(body: bytes) -> Any:
    value = msgspec.json.decode(body.replace(b"{0:", b'{"0":'))
    if isinstance(value, dict):
        value.get("topicList", []).sort()
    return without(value, {"timestamp", "counter"})


def without(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: without(item, keys) for key, item in value.items() if key not in keys}
    return [without(item, keys) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7", "4.5.1"])
def test_brokers_register_and_leave_with_the_bytes_they_send(version: str) -> None:
    async def main() -> None:
        world = World()
        _, address = await world.name_server()
        peer = await world.peer(address)
        answers: dict[int, bytes] = {}
        for row in registrations(version):
            data = bytes.fromhex(row["hex"])
            if row["dir"] == "c>s":
                answers[command_in(data).opaque] = await peer.exchange(data)
            else:
                theirs, ours = command_in(data), command_in(answers[command_in(data).opaque])
                assert like(ours, version=theirs.version) == like(theirs)
        route = await peer.ask(Command(105, ext={"topic": "TBW102"}))
        assert route.code == 17

    run_virtual(main())


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_a_registered_broker_is_answered_for_as_apache_does(version: str) -> None:
    async def main() -> list[str]:
        world = World()
        _, address = await world.name_server()
        broker, admin = await world.peer(address), await world.peer(address)
        rows = requests_to_name_server(version)
        topics = next(command_in(bytes.fromhex(row["resp"])) for row in rows if row["code"] == 206)
        answer = await broker.ask(full_registration(version, json.loads(topics.body)["topicList"]))
        assert answer.code == 0
        return [row["name"] for row in rows if not await agrees(row, admin, version)]

    assert run_virtual(main()) == []


async def agrees(row: dict[str, Any], admin: Peer, version: str) -> bool:
    ours = await admin.exchange(bytes.fromhex(row["req"]))
    if "resp" not in row:
        return version == "4.9.7" and row["outcome"] == "no answer"  # where 5.5.0 answers, so do we
    theirs = bytes.fromhex(row["resp"])
    if version == "5.5.0":
        if row["name"].startswith("bin "):  # 5.x answers a binary request in JSON, we in its own encoding
            changes = {"encoding": 0, "body": b""}
            return like(command_in(ours), **changes) == like(command_in(theirs), **changes)
        exact = row["code"] not in (*TOPIC_LISTS, 322)
        return like(command_in(ours)) == like(command_in(theirs)) and (
            not exact or body_of(ours) == body_of(theirs)
        )
    newer = {"enableActingMaster", "stateVersion"}
    mine, other = command_in(ours), command_in(theirs)
    return (mine.code, mine.ext, mine.opaque, mine.encoding) == (
        other.code,
        other.ext,
        other.opaque,
        other.encoding,
    ) and without(parsed(mine.body or b"{}"), newer) == parsed(other.body or b"{}")


def body_of(data: bytes) -> bytes:
    return command_in(data).body


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7", "4.5.1"])
def test_malformed_frames_end_as_they_do_at_apaches(version: str) -> None:
    """5.5.0 waits for twelve bytes before it looks at any; shorter garbage is closed here at once."""
    rows = [row for row in captured(f"exchanges-{version}") if row["name"].startswith("malformed ns")]
    broken = [row for row in rows if row["code"] is None]

    async def outcome(row: dict[str, Any]) -> str:
        world = World()
        _, address = await world.name_server()
        peer = await world.peer(address)
        answer = await peer.exchange(bytes.fromhex(row["req"]))
        return "closed" if peer.closed and not answer else "answered" if answer else "no answer"

    for row in broken:
        ours = run_virtual(outcome(row))
        if row["outcome"] == "closed":
            assert ours == "closed", row["name"]
        elif row["name"] == "malformed ns json empty object":
            assert ours == "answered"
        elif row["name"] == "malformed ns length max ok 16777212 short":
            assert ours == "no answer"


@pytest.mark.parametrize("name", ["unknown language", "no opaque", "ext numbers", "response flag"])
def test_odd_headers_are_read_as_apache_reads_them(name: str) -> None:
    [row] = [row for row in captured("exchanges-4.9.7") if row["name"] == f"malformed ns {name}"]

    async def main() -> bytes:
        world = World()
        _, address = await world.name_server()
        broker, peer = await world.peer(address), await world.peer(address)
        await broker.ask(full_registration("4.9.7", ["TBW102", "T1"]))
        return await peer.exchange(bytes.fromhex(row["req"]))

    answer = run_virtual(main())
    if name == "response flag":
        assert answer == b""
    else:
        theirs, ours = command_in(bytes.fromhex(row["resp"])), command_in(answer)
        assert ours.code == theirs.code == 0
        assert b'"brokerAddrs":{0:"127.0.0.1:30911"}' in ours.body


def test_a_bad_checksum_is_refused_in_apaches_words() -> None:
    rows = {row["name"]: row for row in captured("exchanges-5.5.0")}
    row = rows["ns register empty-ish fake on own server (crc bad)"]

    async def main() -> bytes:
        world = World()
        _, address = await world.name_server()
        return await (await world.peer(address)).exchange(bytes.fromhex(row["req"]))

    assert like(command_in(run_virtual(main()))) == like(command_in(bytes.fromhex(row["resp"])))


def test_the_kit_cuts_what_it_encodes() -> None:
    assert command_in(encode(Command(1, 2))).opaque == 2
