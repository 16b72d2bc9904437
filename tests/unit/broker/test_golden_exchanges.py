"""Requests that were sent to Apache's 5.5.0 broker, sent to our handlers: the same answers."""

import json
import lzma
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.kit import virtual
from tests.unit.broker.golden_exchanges_kit import command_of
from tests.unit.broker.kit import Bench

from turbopump.protocol import dialect
from turbopump.protocol.command import Command
from turbopump.protocol.errors import BrokenBody

EXCHANGES = Path(__file__).parents[2] / "compat" / "wire" / "exchanges-5.5.0.jsonl.xz"

CREATE = """create T1; create T4q; create RO; create WO; create TE (empty); create bad name; create
blank; create too long; create system; create = cluster name; create missing perm; create missing
order; create bad filter type; create bad int; create with attributes; create with bad attributes;
create attributes w/o plus; get topic config 351; get topic config miss"""

OFFSETS = """max T1/0; max TE/0; max nope/0; max T1/9; min T1/0; min TE/0; min nope/0; min T1/9;
earliest T1/0; earliest TE/0; earliest nope/0; earliest T1/9; max committed=false; search T1 ts=0
None; search T1 ts=0 LOWER; search T1 ts=0 UPPER; search T1 ts=0 upper; search T1 ts=0 zz; search T1
ts=now-1s None; search T1 ts=now-1s UPPER; search T1 ts=-1 None; search T1 ts=-1 UPPER; search TE;
search nope"""

CLIENTS = """38 no consumer; 203 offline; 204 unknown; hb; 38; B: hb second; 38 after second; B: 38
on second; hb again same; 38 nothing pushed?; B: hb fingerprint; B: hb fingerprint withoutSub; B: hb
fingerprint2 withoutSub; 38 after fp; hb empty object; hb blank consumer group; 203; 204; 328; 46
tag; 46 no body; heartbeat on fast port; 38 fast; 35 no group; B: 35 consumer; 38 after 35; 35
unknown group; 35 both"""

COMMITS = """14 after commit bit; 14 none, T1; 14 none, setZero=false; 14 none, empty queue; 14
none, unknown topic; 14 none bad queue; 15 sync; 14 after; 15 smaller; 14 after smaller; 15 unknown
topic; 15 bad queue; 15 unknown group; 15 missing queueId; 15 oneway; 14 after oneway; 15 beyond
max; 14 beyond"""

QUERIES = """12 key; 12 uniq; 12 uniq false flag; 12 miss; 12 no flag field uniq as key; 12 unknown
topic; 12 indexType (5.x); 33 beyond; 33 negative"""

# Not `25 unknown`: an unknown key is refused here (D104).
TOOLS = """200; 200 bad name; 200 no body; 352; 352 miss; 207 removeOffset; 207 cleanOffset; 207
miss; 202; 202 miss; 208 unknown; 300; 300 miss; 305; 25; 25 blacklisted; 25 no body; 25
brokerPermission=4; 25 brokerPermission=2; 25 brokerPermission=6; delete topic; delete topic
unknown; delete system topic; delete blank"""

LOCKS = """41; 41 other client; 41 again same; 42; 41 c2 after unlock; 41 empty set"""

RESETS = """222 online; 14 after 222; 222 to max; 222 offline; 222 unknown topic; 222 unsub topic; 222
queue; 222 missing force"""

LATE_COMMITS = """222 known group no offsets; 15 CGP; 222 offline with offsets; 14 CGP"""

RELAYS = """307 unknown client; 307 unknown group; 307 old client version; 307 to v61 client"""

PROGRESS = """208; 208 topic; 208 empty topic; 343; 345; 303; 308; 308 no filter; 314; 321; 321 no group;
321 unknown; 353"""

NO_AUTO_CREATION = """hb unknown group, autoCreateGroup off; 38 NOG; 15 group not exist; 14 group
not exist; 352 miss autoCreate off"""

# Where we answer as 4.9.7 did, and not as the recorded 5.5.0: nobody may skip a message, or lose an offset.
STARTS_AT_ZERO = {"code": 0, "remark": None, "ext": {"offset": "0"}}
KEPT = {"code": 0, "remark": None}
AS_4_9: dict[str, dict[str, Any]] = {
    "14 none, empty queue": STARTS_AT_ZERO,
    "14 none, unknown topic": STARTS_AT_ZERO,
    "14 none bad queue": STARTS_AT_ZERO,
    "14 group not exist": STARTS_AT_ZERO | {"ext": {"offset": "1"}},
    "15 unknown group": KEPT,
    "15 beyond max": KEPT,
    "14 beyond": STARTS_AT_ZERO | {"ext": {"offset": "1000000"}},
    "15 group not exist": KEPT,
}

JAVA_ONLY = re.compile(r"Cannot invoke|org\.apache\.|java\.")
LONG_NUMBER = re.compile(r"\d{13,}")
PORT = re.compile(r"(127\.0\.0\.1):\d+")
VOLATILE = (
    *("topicPutTps", "consumeTps", "indexLastUpdatePhyoffset", "delayTime", "physicOffset", "physicSize"),
    *("consumeTimeStampStr", "maxTimeStampStr", "minTimeStampStr"),
)
UNORDERED = ("groupList", "topicList", "connectionSet", "consumerIdList")


@cache
def rows() -> dict[str, dict[str, Any]]:
    lines = lzma.decompress(EXCHANGES.read_bytes()).splitlines()
    found: dict[str, dict[str, Any]] = {}
    for row in map(json.loads, lines):
        if "req" in row:
            found.setdefault(row["name"], row)
    return found


def steps(script: str) -> Iterator[tuple[str, str]]:
    for item in script.replace("\n", " ").split(";"):
        peer, colon, name = item.strip().partition(": ")
        yield (peer, name) if colon else ("A", item.strip())


async def replay(bench: Bench, script: str) -> None:
    peers = {"A": bench.connect(1), "B": bench.connect(2)}
    for peer, name in steps(script):
        row = rows()[name]
        heard = await peers[peer].exchange([bytes.fromhex(row["req"])])
        answers = [command for command in heard if command.is_response]
        if "resp" not in row:
            assert answers == [], name
            continue
        expected = summary(command_of(row["resp"]), answers[-1]) | AS_4_9.get(name, {})
        assert summary(answers[-1]) == expected, name


def summary(answer: Command, ours: Command | None = None) -> dict[str, Any]:
    """What has to be equal. A remark that only Java can give counts as ours."""
    remark = answer.remark
    if ours is not None and remark is not None and JAVA_ONLY.search(remark):
        remark = ours.remark
    return {
        "code": answer.code,
        "remark": remark,
        "ext": plain(answer.ext) if answer.ext is not None else None,
        "body": body_of(answer.body),
    }


def body_of(body: bytes) -> Any:
    try:
        return plain(dialect.loads(body)) if body else None
    except BrokenBody:
        return "records"


def plain(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: plain(item, name) for name, item in value.items() if name not in VOLATILE}
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return sorted(items, key=str) if key in UNORDERED else items
    text = PORT.sub(r"\1:port", LONG_NUMBER.sub("time", str(value)))
    return value if text == str(value) else text


def with_messages() -> Bench:
    """As the recorded broker was: eleven messages in T1, some with keys."""
    bench = Bench()
    for name, queues in (("T1", 1), ("TE", 1)):
        bench.topics.for_group(name, queues)
    bench.put("T1", 0, 9, TAGS="A", KEYS="k1", UNIQ_KEY="7F000001000100000000000000000001")
    bench.put("T1", 0, 2, TAGS="B", KEYS="k2", UNIQ_KEY="7F000001000100000000000000000002")
    return bench


@virtual
async def test_creating_topics() -> None:
    await replay(Bench(), CREATE)


@virtual
async def test_offsets_of_a_queue() -> None:
    await replay(with_messages(), OFFSETS)


@virtual
async def test_clients_that_come_and_go() -> None:
    await replay(with_messages(), CLIENTS)


@virtual
async def test_committed_offsets() -> None:
    bench = with_messages()
    bench.groups.for_consume("CG")
    bench.offsets.commit("CG", "T1", 0, 2)
    await replay(bench, COMMITS)


@virtual
async def test_queries() -> None:
    bench = with_messages()
    await replay(bench, QUERIES)


@virtual
async def test_tools() -> None:
    bench = with_messages()
    bench.put("T1", 0, 4)
    bench.groups.for_consume("CG")
    bench.offsets.commit("CG", "T1", 0, 2)
    await replay(bench, TOOLS)


@virtual
async def test_locks() -> None:
    await replay(with_messages(), LOCKS)


@virtual
async def test_resets() -> None:
    bench = with_messages()
    bench.put("T1", 0, 4)
    bench.groups.for_consume("CG")
    await replay(bench, RESETS)


@virtual
async def test_commits_after_a_reset() -> None:
    bench = with_messages()
    bench.groups.for_consume("CGP")
    await replay(bench, LATE_COMMITS)


@virtual
async def test_how_far_groups_are() -> None:
    bench = Bench()
    bench.topics.for_group("T1", 1)
    bench.put("T1", 0, TAGS="A")
    bench.put("T1", 0, TAGS="B")
    bench.put("T1", 0, 13)
    await replay(bench, "hb")
    bench.offsets.commit("CG", "T1", 0, 4)
    bench.offsets.commit("CG", "T1", 99, 1)
    bench.offsets.pulled("CG", "T1", 0, 15)
    await replay(bench, PROGRESS)


@virtual
async def test_consumers_that_cannot_be_asked() -> None:
    await replay(with_messages(), RELAYS)


@virtual
async def test_a_broker_without_auto_creation() -> None:
    bench = Bench("autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false")
    bench.topics.for_group("T1", 1)
    bench.put("T1", 0)
    await replay(bench, NO_AUTO_CREATION)
