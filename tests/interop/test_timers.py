"""Timed messages at Apache's 5.5.0 and at ours: the same answers, and one store that both go on with.

A journey is 5.5.0 → ours → 5.5.0 on one directory, stopped or killed, with timers that fall due at each
station, some that fell due while nobody ran, and some that wait for weeks. 5.5.0 is killed as soon as it has
delivered: ours finds its copies in the log. Ours is killed when it has written that down, at most a second
later: before that 5.5.0 would deliver again, as it does after a kill of its own.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from turbopump.protocol import properties
from turbopump.protocol.record import Record, decode_all
from turbopump.store import timer_check

from . import asking, clients, peers, topics

APACHE = "5.5.0"
TOPIC = "TimerT"
TIMER_TOPIC = "rmq_sys_wheel_timer"
CONF = {
    "recallMessageEnable": "true",
    "timerMaxDelaySec": "259200",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": str(1 << 18),
    "mappedFileSizeTimerLog": str(1 << 16),
}
LATE_MS = 2_500  # 5.5.0 counts in seconds, and this machine may be busy
PATIENCE_MS = 60_000
STARTS_IN_MS = 30_000


@dataclass
class Script:
    """What is asked of a broker, and what is known about each message."""

    cluster: peers.Cluster
    due_ms: dict[str, int] = field(default_factory=dict)

    def send(self, name: str, **pairs: str) -> asking.Answer:
        text = properties.pack({"UNIQ_KEY": unique_key(name), "WAIT": "true", **pairs})
        return asking.ask(
            self.cluster.broker_addr,
            10,
            name.encode(),
            producerGroup="G",
            topic=TOPIC,
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=1,
            sysFlag=0,
            bornTimestamp=now_ms(),
            flag=0,
            properties=text,
            reconsumeTimes=0,
            unitMode=False,
            batch=False,
        )

    def wait_for(self, name: str, delay_ms: int) -> str:
        """A message that is due then; the handle to recall it."""
        self.due_ms[name] = now_ms() + delay_ms
        answer = self.send(name, TIMER_DELIVER_MS=str(self.due_ms[name]))
        assert answer.code == 0, answer
        return answer.ext["recallHandle"]

    def recall(self, handle: str, topic: str = TOPIC) -> asking.Answer:
        return asking.ask(self.cluster.broker_addr, 370, producerGroup="G", topic=topic, recallHandle=handle)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def unique_key(name: str) -> str:
    return f"KEY{name:0>29}"


def read(cluster: peers.Cluster, topic: str = TOPIC, queue_id: int = 1) -> list[Record]:
    found: list[Record] = []
    while True:
        answer = asking.ask(
            cluster.broker_addr,
            11,
            consumerGroup="CID_readers",
            topic=topic,
            queueId=queue_id,
            queueOffset=len(found),
            maxMsgNums=32,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
        )
        if answer.code != 0:
            return found
        found += decode_all(answer.body)


def wait_until(cluster: peers.Cluster, names: set[str], latest_ms: int) -> list[Record]:
    while True:
        found = read(cluster)
        if names <= {record.body.decode() for record in found} or now_ms() > latest_ms:
            return found
        time.sleep(0.05)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Script]]:
    scripts = {}
    try:
        for kind in (APACHE, peers.OURS):
            place = peers.place(tmp_path_factory.mktemp(f"timers-{kind}"))
            scripts[kind] = Script(peers.start(kind, place, CONF, namesrv=peers.OURS))
            assert scripts[kind].send("first").code == 0
        yield scripts
    finally:
        for script in scripts.values():
            script.cluster.discard()


WISHES: list[dict[str, str]] = [
    {"TIMER_DELAY_SEC": "20"},
    {"TIMER_DELAY_MS": "22500"},
    {"TIMER_DELAY_MS": "+7000"},
    {"TIMER_DELAY_SEC": "x"},
    {"TIMER_DELAY_SEC": ""},
    {"TIMER_DELAY_SEC": "-5"},
    {"TIMER_DELAY_SEC": "0"},
    {"TIMER_DELAY_MS": "1.5"},
    {"TIMER_DELAY_MS": "99999999999999999999"},
    {"TIMER_DELIVER_MS": "0"},
    {"TIMER_DELAY_SEC": "259201"},
    {"TIMER_DELAY_SEC": "259199"},
    {"TIMER_DELAY_SEC": "3", "TIMER_DELIVER_MS": "x"},
    {"TIMER_DELAY_SEC": "3", "DELAY": "2"},
    {"TIMER_DELAY_SEC": "3", "DELAY": "0"},
    {"TIMER_OUT_MS": "5"},
    {"TIMER_DELAY_MS": "1"},
    {"TIMER_DEL_UNIQKEY": "abc"},
    {"TIMER_DEL_UNIQKEY": "abc", "TIMER_DELAY_SEC": "10"},
    {"TIMER_DEL_UNIQKEY": "abc", "TIMER_DELIVER_MS": "5"},
]


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: "-".join(f"{k}={v}" for k, v in wish.items()))
def test_a_wish_is_answered_alike(both: dict[str, Script], wish: dict[str, str]) -> None:
    answers = [script.send("wish", **wish) for script in both.values()]
    seen = [(answer.code, answer.remark, "recallHandle" in answer.ext) for answer in answers]
    assert seen[0] == seen[1]


def handle_of(*words: str) -> str:
    return urlsafe_b64encode(" ".join(words).encode()).decode()


def test_recalls_are_answered_alike(both: dict[str, Script]) -> None:
    soon, key = str(now_ms() + 60_000), unique_key("x")
    for handle, topic in (
        ("zzz", TOPIC),
        ("***", TOPIC),
        ("", TOPIC),
        (handle_of("v1", TOPIC, "broker-a"), TOPIC),
        (handle_of("v2", TOPIC, "broker-a", soon, key), TOPIC),
        (handle_of("v1", "Other", "broker-a", soon, key), TOPIC),
        (handle_of("v1", TOPIC, "broker-x", soon, key), TOPIC),
        (handle_of("v1", TOPIC, "broker-a", "x", key), TOPIC),
        (handle_of("v1", TOPIC, "broker-a", "5", key), TOPIC),
        (handle_of("v1", TOPIC, "broker-a", str(now_ms() + 260_000_000), key), TOPIC),
        (handle_of("v1", TOPIC, "broker-a", soon, "unknown"), TOPIC),
        (handle_of("v1", TOPIC, "broker-a", soon, key, "more"), TOPIC),
        (handle_of("v1", "None", "broker-a", soon, key), "None"),
        (handle_of("v1", "%RETRY%G", "broker-a", soon, key), "%RETRY%G"),
    ):
        apache, ours = (both[kind].recall(handle, topic) for kind in (APACHE, peers.OURS))
        assert (ours.code, ours.remark, ours.ext) == (apache.code, apache.remark, apache.ext), handle


@pytest.mark.parametrize("kind", [APACHE, peers.OURS])
def test_what_is_due_comes_and_what_is_recalled_does_not(both: dict[str, Script], kind: str) -> None:
    script = both[kind]
    for number in range(5):
        script.wait_for(f"due{number}", 2_000 + 217 * number)
    handle = script.wait_for("recalled", 3_000)
    words = urlsafe_b64decode(handle).decode().split(" ")
    assert (words[0], words[1], words[2], words[4]) == ("v1", TOPIC, "broker-a", unique_key("recalled"))
    answer = script.recall(handle)
    assert (answer.code, answer.ext["msgId"]) == (0, unique_key("recalled"))
    names = {f"due{number}" for number in range(5)}
    found = wait_until(script.cluster, names, now_ms() + PATIENCE_MS)
    time.sleep(2.5)
    arrived = {record.body.decode(): record for record in read(script.cluster)}
    assert names <= {record.body.decode() for record in found}
    assert "recalled" not in arrived
    for name in names:
        late_ms = arrived[name].store_timestamp - script.due_ms[name]
        assert 0 <= late_ms <= LATE_MS, (name, late_ms)


def test_a_message_that_came_has_the_same_properties_at_both(both: dict[str, Script]) -> None:
    found = []
    for script in both.values():
        script.wait_for("alike", 1_500)
        records = wait_until(script.cluster, {"alike"}, now_ms() + PATIENCE_MS)
        (record,) = (record for record in records if record.body == b"alike")
        found.append(record)
        (waited,) = (r for r in read(script.cluster, TIMER_TOPIC, 0) if r.body == b"alike")
        mine = set(waited.property_map()) - {"TURBOPUMP_DELIVER_AT"}
        assert mine == set(record.property_map()) - {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
    assert set(found[0].property_map()) == set(found[1].property_map())
    assert found[0].sys_flag == found[1].sys_flag


def test_a_java_producer_and_its_consumer_see_the_same_at_both(
    both: dict[str, Script], tmp_path: Path
) -> None:
    """Each way to give a time, and to recall: the program prints what came of it, faults among it."""
    seen = {}
    for kind, script in both.items():
        topic = topics.create(script.cluster, clients.prefix(), 2)
        said = clients.run_java(f"java-{APACHE}", "Timed", [script.cluster.namesrv, topic], tmp_path)
        lines = [line.replace(topic, "T") for line in said.splitlines()]
        seen[kind] = sorted(line for line in lines if line.split(" ")[0] in ("step", "came", "fault"))
    assert seen[peers.OURS] == seen[APACHE]
    came = {line.split(" ")[1] for line in seen[peers.OURS] if line.startswith("came ")}
    assert came == {"ms", "sec", "at", "past", "zero", "level", "async"}
    assert not [line for line in seen[peers.OURS] if line.startswith("fault ")]


def wait_written(cluster: peers.Cluster, due_at_ms: int) -> None:
    """Until its file says that everything up to then is done."""
    latest_ms = now_ms() + PATIENCE_MS
    path = cluster.store_dir / "config" / "timercheck"
    while not path.exists() or timer_check.decode(path.read_bytes()).read_ms <= due_at_ms:
        assert now_ms() < latest_ms, "timercheck was not written"
        time.sleep(0.05)


@dataclass
class Journey:
    due_ms: dict[str, int]
    arrived: dict[str, list[Record]]
    waiting: list[Record]


@pytest.fixture(scope="module", params=["clean stop", "kill -9"])
def journey(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    place = peers.place(tmp_path_factory.mktemp("timer-journey"))
    due_ms: dict[str, int] = {}

    def station(kind: str, name: str, ends: bool) -> peers.Cluster:
        cluster = peers.start(kind, place, CONF, namesrv=peers.OURS)
        try:
            script = Script(cluster, due_ms)
            for number, delay_ms in enumerate((1_000, 1_700, 8_000, 25_000, 40_000, 200_000_000)):
                script.wait_for(f"{name}{number}", delay_ms)
            for number, delay_ms in enumerate((9_000, 41_000)):
                assert script.recall(script.wait_for(f"{name}recalled{number}", delay_ms)).code == 0
            wait_until(cluster, {f"{name}0", f"{name}1"}, now_ms() + PATIENCE_MS)
            if kind == peers.OURS:
                wait_written(cluster, due_ms[f"{name}1"])
            if ends:
                cluster.stop() if request.param == "clean stop" else cluster.kill()
            return cluster
        except BaseException:
            cluster.kill()
            raise

    station(APACHE, "apache", ends=True)
    station(peers.OURS, "ours", ends=True)
    cluster = station(APACHE, "again", ends=False)
    try:
        expected = {
            name for name, due in due_ms.items() if due < now_ms() + 100_000 and "recalled" not in name
        }
        wait_until(cluster, expected, now_ms() + 90_000)
        time.sleep(3)
        arrived: dict[str, list[Record]] = {}
        for record in read(cluster):
            arrived.setdefault(record.body.decode(), []).append(record)
        return Journey(due_ms, arrived, read(cluster, TIMER_TOPIC, 0))
    finally:
        cluster.discard()


@pytest.mark.long
def test_each_came_once_wherever_it_was_sent_and_whoever_ran(journey: Journey) -> None:
    soon = {name for name, due in journey.due_ms.items() if due < now_ms()}
    expected = Counter({name: 1 for name in soon if "recalled" not in name})
    assert Counter({name: len(found) for name, found in journey.arrived.items()}) == expected


@pytest.mark.long
def test_none_came_early(journey: Journey) -> None:
    for name, records in journey.arrived.items():
        assert all(record.store_timestamp >= journey.due_ms[name] for record in records), name


@pytest.mark.long
def test_a_store_of_ours_with_a_timer_of_four_hundred_days_opens_at_apache(tmp_path: Path) -> None:
    place = peers.place(tmp_path)
    with peers.start(peers.OURS, place, CONF | {"timerMaxDelaySec": "99999999"}, namesrv=peers.OURS) as ours:
        script = Script(ours)
        script.wait_for("far", 400 * 86_400_000)
        script.wait_for("near", STARTS_IN_MS)
        time.sleep(2)
    with peers.start(APACHE, place, CONF, namesrv=peers.OURS) as apache:
        found = wait_until(apache, {"near"}, now_ms() + STARTS_IN_MS + PATIENCE_MS)
        assert [record.body for record in found] == [b"near"]
