import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual
from tests.unit.broker.kit import Bench, HandClock, Peer
from tests.unit.remoting.kit import connected, turn
from tests.unit.store.kit import apache_store

from turbopump.broker.config import GroupRules, OffsetRules
from turbopump.broker.consume.reused_offsets import FIRST_GENERATION, FREE, HANDED, ReusedOffsets
from turbopump.broker.groups.offsets import ROWS_PER_TURN, CommittedOffsets, OffsetHandler
from turbopump.broker.persist import PersistedTable
from turbopump.broker.topics import Topic
from turbopump.protocol.command import ONEWAY, Command, encode
from turbopump.protocol.errors import BrokenBody
from turbopump.remoting.router import Router
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual

QUERY, UPDATE = 14, 15


def table(step: int = 500) -> CommittedOffsets:
    return CommittedOffsets(OffsetRules(version_step=step), HandClock())


def test_the_last_commit_counts_also_when_it_steps_back() -> None:
    offsets = table()
    assert offsets.query("G", "T", 0) == -1
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 0, 3)
    offsets.commit("G", "T", 1, 7)
    assert [offsets.query("G", "T", queue) for queue in (0, 1, 2)] == [3, 7, -1]
    assert offsets.query("H", "T", 0) == -1


def test_a_commit_that_steps_back_is_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    offsets = table()
    for offset in (5, 5, 7, 3):
        offsets.commit("G", "T", 0, offset)
    assert caplog.messages == ["Commit of group G on T queue 0 goes back from 7 to 3"]


def test_the_version_moves_every_so_many_commits() -> None:
    offsets = table(step=3)
    for offset in range(7):
        offsets.commit("G", "T", 0, offset)
    assert offsets.version.counter == 2


def test_topics_and_groups_find_each_other_and_are_forgotten() -> None:
    offsets = table()
    for topic, group in (("T", "G"), ("U", "G"), ("T", "H")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.topics_of_group("G") == ["T", "U"]
    assert offsets.groups_of_topic("T") == ["G", "H"]
    offsets.forget_topic("T")
    assert offsets.groups_of_topic("T") == []
    assert offsets.query("G", "U", 0) == 1
    offsets.forget_group("G")
    assert offsets.topics_of_group("G") == []


def test_after_a_crash_no_offset_stays_beyond_the_end_of_its_queue() -> None:
    offsets = table()
    offsets.commit("G", "T", 0, 10)
    offsets.commit("G", "T", 1, 4)
    offsets.commit("H", "gone", 0, 9)
    offsets.dump()
    ends = {("T", 0): 7, ("T", 1): 4}
    assert offsets.clamp(lambda topic, queue_id: ends.get((topic, queue_id), 0)) == 2
    assert [offsets.query("G", "T", queue) for queue in (0, 1)] == [7, 4]
    assert offsets.query("H", "gone", 0) == 0
    assert offsets.is_dirty
    assert offsets.clamp(lambda topic, queue_id: ends.get((topic, queue_id), 0)) == 0


def test_a_dump_leaves_the_table_clean_until_the_next_commit() -> None:
    offsets = table()
    changes: list[None] = []
    offsets.on_change = lambda: changes.append(None)
    assert not offsets.is_dirty
    offsets.commit("G", "T", 0, 1)
    offsets.commit("G", "T", 0, 2)
    assert (offsets.is_dirty, len(changes)) == (True, 1)
    offsets.dump()
    assert not offsets.is_dirty
    offsets.forget_group("nobody")
    assert len(changes) == 1
    offsets.forget_group("G")
    assert (offsets.is_dirty, len(changes)) == (True, 2)


def test_a_reset_holds_against_commits_until_it_is_taken() -> None:
    offsets = table()
    offsets.commit("G", "T", 0, 5)
    offsets.reset("G", "T", 0, 2)
    assert offsets.has_resets
    assert not offsets.commit("G", "T", 0, 6)
    assert offsets.commit("G", "T", 1, 6)
    assert offsets.commit("H", "T", 0, 6)
    assert offsets.query("G", "T", 0) == 2
    assert [offsets.take_reset("G", "T", queue) for queue in (1, 0, 0)] == [-1, 2, -1]
    assert not offsets.has_resets
    assert offsets.commit("G", "T", 0, 3)
    assert offsets.query("G", "T", 0) == 3


def test_a_pending_reset_is_kept_in_the_file_and_clamped_with_it() -> None:
    offsets = table()
    offsets.reset("G", "T", 0, 9)
    again = table()
    again.load(offsets.dump())
    assert again.clamp(lambda topic, queue_id: 4) == 2
    assert again.take_reset("G", "T", 0) == 4
    assert b"pendingResets" not in again.dump()


def test_dropped_resets_are_dropped_from_the_file_too() -> None:
    offsets = table()
    offsets.reset("G", "T", 0, 9)
    assert b"pendingResets" in offsets.dump()
    changes: list[bool] = []
    offsets.on_change = lambda: changes.append(offsets.is_dirty)
    offsets.drop_resets()
    assert changes == [True]
    assert b"pendingResets" not in offsets.dump()
    offsets.drop_resets()
    assert changes == [True]
    assert offsets.query("G", "T", 0) == 9


def test_a_reset_goes_with_its_group_or_topic() -> None:
    offsets = table()
    for group, topic in (("G", "T"), ("H", "T"), ("H", "U")):
        offsets.reset(group, topic, 0, 1)
        offsets.pulled(group, topic, 0, 8)
    offsets.forget_group("G")
    offsets.forget_topic("U")
    assert [offsets.take_reset(group, topic, 0) for group, topic in (("G", "T"), ("H", "U"))] == [-1, -1]
    assert [offsets.query_pulled(group, topic, 0) for group, topic in (("G", "T"), ("H", "U"))] == [-1, -1]
    assert (offsets.take_reset("H", "T", 0), offsets.query_pulled("H", "T", 0)) == (1, 8)


def test_a_clone_is_newer_than_a_pending_reset() -> None:
    offsets = table()
    offsets.commit("G", "T", 0, 5)
    offsets.reset("H", "T", 0, 1)
    offsets.reset("H", "U", 0, 2)
    offsets.clone("G", "H", "T")
    assert offsets.take_reset("H", "T", 0) == -1
    assert offsets.query("H", "T", 0) == 5
    assert offsets.take_reset("H", "U", 0) == 2


@virtual
async def test_whoever_asks_about_invented_names_leaves_no_trace_in_the_reused_offsets() -> None:
    bench = Bench()
    reused = ReusedOffsets(bench.store.queues, 0)
    requests = OffsetHandler(
        bench.offsets, bench.topics, bench.groups, lambda topic, queue_id: 0, reused, bench.clock
    )
    peer = Peer(*connected(Router(requests.routes()).serve))
    bench.topics.update(Topic("T", 2, 2), {})
    bench.groups.find_or_create("G")
    asked = [("G", "T", 1), ("G", "T", 2), ("G", "T", -1), ("G", "Invented", 0), ("Invented", "T", 0)]
    for group, topic, queue_id in asked:
        await peer.ask(14, consumerGroup=group, topic=topic, queueId=queue_id)
    key = ("G", "T", 1, FIRST_GENERATION)
    assert peer.connection.attributes == {FREE: {key}}
    bench.offsets.commit("G", "T", 1, 5)
    for group, topic, queue_id in asked:
        await peer.ask(14, consumerGroup=group, topic=topic, queueId=queue_id)
    assert peer.connection.attributes == {FREE: {key}, HANDED: {key: 5}}
    assert reused._hosts == {(peer.connection.peer[0], key): 5}
    reused.group_deleted("G")
    assert reused._hosts == {}


def test_what_was_pulled_is_ahead_of_what_was_committed() -> None:
    offsets = table()
    assert offsets.query_pulled("G", "T", 0) == -1
    offsets.commit("G", "T", 0, 5)
    assert offsets.query_pulled("G", "T", 0) == 5
    offsets.pulled("G", "T", 0, 32)
    assert (offsets.query_pulled("G", "T", 0), offsets.query("G", "T", 0)) == (32, 5)


@virtual
async def test_a_large_table_is_written_in_slices_and_others_have_their_turn_between_two() -> None:
    offsets = table()
    for number in range(3 * ROWS_PER_TURN + 1):
        offsets.commit(f"G{number}", "T", 0, number)
    written: list[bytes] = []
    workers = SimulatedWorkers(SimulatedDisk(Chance(1), VirtualClock()))
    file = PersistedTable(
        "consumerOffset.json", offsets.slices, lambda name, data: written.append(data), workers
    )
    offsets.on_change = file.changed
    offsets.commit("G0", "T", 0, 77)
    file.changed()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    offsets.commit("late", "T", 0, 1)
    assert not written
    await asyncio.sleep(0.05)
    again = table()
    assert again.load(written[0]) >= 3 * ROWS_PER_TURN + 1
    assert again.query("G0", "T", 0) == 77
    await file.close()
    again.load(written[-1])
    assert again.query("late", "T", 0) == 1


@virtual
async def test_offsets_are_written_every_five_seconds_and_again_after_a_failure() -> None:
    offsets = table()
    written: list[bytes] = []
    is_full = False

    def save(name: str, data: bytes) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        written.append(data)

    workers = SimulatedWorkers(SimulatedDisk(Chance(1), VirtualClock()))
    file = PersistedTable("consumerOffset.json", offsets.dump, save, workers, pause_s=5.0)
    offsets.on_change = file.changed
    for second in range(20):
        is_full = 5 <= second < 12
        offsets.commit("G", "T", 0, second)
        await asyncio.sleep(1)
    await file.close()
    assert 3 <= len(written) <= 5
    again = table()
    again.load(written[-1])
    assert again.query("G", "T", 0) == 19


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
def test_the_file_of_an_apache_broker_is_read_and_ours_holds_the_same(name: str, tmp_path: Path) -> None:
    data = Path(apache_store(name, tmp_path), "config/consumerOffset.json").read_bytes()
    offsets = table()
    assert offsets.load(data) > 0
    again = table()
    again.load(offsets.dump())
    ours = json.loads(offsets.dump())["offsetTable"]
    assert ours == json.loads(again.dump())["offsetTable"]
    topic, group = next(iter(ours)).split("@")
    queue_id, offset = next(iter(ours[f"{topic}@{group}"].items()))
    assert again.query(group, topic, int(queue_id)) == offset


@pytest.mark.parametrize(
    "data",
    [
        b'{"offsetTable":{"T@G":{0:5,1:6}}}',
        b'{"offsetTable":{"T@G":{"0":5,"1":6}}}',
        b'{\n\t"dataVersion":{"counter":7,"timestamp":1},\n\t"groupTopicMap":{"G":["T"]},\n\t"offsetTable":{\n'
        b'\t\t"T@G":{0:5,1:6\n\t\t}\n\t},\n\t"pullOffsetTable":{\n\t\t"T@G":{\n\t\t\t0:9\n\t\t}\n\t}\n}',
    ],
)
def test_all_dialects_are_read(data: bytes) -> None:
    offsets = table()
    assert offsets.load(data) == 1
    assert [offsets.query("G", "T", queue) for queue in (0, 1)] == [5, 6]


def test_keys_that_are_no_topic_and_group_are_kept_for_others() -> None:
    offsets = table()
    offsets.load(b'{"offsetTable":{"a@b@c":{0:1},"T@G":{0:2}}}')
    assert json.loads(offsets.dump())["offsetTable"] == {"T@G": {"0": 2}, "a@b@c": {"0": 1}}


@pytest.mark.parametrize("data", [b"", b"{", b'{"offsetTable":{"T@G":{"x":1}}}', b"\0" * 64, b"[]"])
def test_a_damaged_file_is_refused_and_leaves_the_table_as_it_was(data: bytes) -> None:
    offsets = table()
    offsets.commit("G", "T", 0, 1)
    with pytest.raises(BrokenBody):
        offsets.load(data)
    assert offsets.query("G", "T", 0) == 1


NAMES = st.from_regex(r"[a-zA-Z0-9_%|-]{1,10}", fullmatch=True)


@given(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 65_535), st.integers(0, 2**63 - 1)), max_size=20))
def test_what_is_dumped_is_loaded_again(commits: list[tuple[str, str, int, int]]) -> None:
    offsets = table()
    for group, topic, queue_id, offset in commits:
        offsets.commit(group, topic, queue_id, offset)
    again = table()
    again.load(offsets.dump())
    for group, topic, queue_id, _ in commits:
        assert again.query(group, topic, queue_id) == offsets.query(group, topic, queue_id)


@virtual
async def test_a_group_without_a_commit_starts_at_zero_where_message_0_is_young_or_still_to_come() -> None:
    """Whoever were told nothing about an empty queue would ask for its end, and skip what came meanwhile."""
    bench = Bench()
    peer = bench.connect()
    bench.topics.update(Topic("T", 2, 2), {})
    bench.put("T", 0)
    for fields in (
        {"topic": "T", "queueId": 0},
        {"topic": "T", "queueId": 1},
        {"topic": "nope", "queueId": 0},
    ):
        answer = await peer.ask(QUERY, consumerGroup="G", **fields)
        assert (answer.code, answer.ext) == (0, {"offset": "0"})
    for queue_id in (0, 1):
        answer = await peer.ask(
            QUERY, consumerGroup="G", topic="T", queueId=queue_id, setZeroIfNotFound="false"
        )
        assert (answer.code, answer.ext) == (22, {})


@virtual
async def test_a_group_without_a_commit_starts_at_the_end_of_a_queue_whose_messages_are_all_gone() -> None:
    """Nothing is there to be read, so wherever its consumer wants to begin, that is here."""
    bench = Bench()
    peer = bench.connect()
    bench.topics.update(Topic("T", 1, 1), {})
    bench.put("T", 0, 12)
    queue = bench.store.queues.queue("T", 0)
    queue._floor_for, queue._floor = queue._context.log_min(), queue.max_offset
    answer = await peer.ask(QUERY, consumerGroup="G", topic="T", queueId=0)
    assert (answer.code, answer.ext) == (0, {"offset": "12"})


@virtual
async def test_row_22_from_the_end_means_from_the_beginning_while_the_beginning_is_young() -> None:
    """The rule, both sides: a new group is told 0 while message 0 is in memory. Afterwards it is told
    nothing, and its consumer asks where the end is (30) or what its time means (29)."""
    hot = 1000
    for put, code in ((1, 0), (20, 22)):
        bench = Bench()
        peer = bench.connect()
        bench.topics.update(Topic("T", 1, 1), {})
        bench.store.reader._hot_bytes = hot
        bench.put("T", 0, put)
        answer = await peer.ask(QUERY, consumerGroup="G", topic="T", queueId=0)
        assert answer.code == code, f"{bench.store.log.end} bytes in the log, {hot} of them young"
        answer = await peer.ask(30, topic="T", queueId=0)
        assert (answer.ext or {})["offset"] == str(put)


@virtual
async def test_row_22_a_new_queue_is_read_from_its_first_message() -> None:
    """A queue that is added to an old topic has no commit; its first message is young: nothing is skipped."""
    bench = Bench()
    peer = bench.connect()
    bench.topics.update(Topic("T", 1, 1), {})
    bench.groups.for_consume("G")
    bench.put("T", 0, 20)
    await peer.ask(UPDATE, consumerGroup="G", topic="T", queueId=0, commitOffset=20)
    bench.topics.update(Topic("T", 2, 2), {})
    answer = await peer.ask(QUERY, consumerGroup="G", topic="T", queueId=1)
    assert (answer.code, answer.ext) == (0, {"offset": "0"}), "before its first message"
    bench.put("T", 1)
    answer = await peer.ask(QUERY, consumerGroup="G", topic="T", queueId=1)
    assert (answer.code, answer.ext) == (0, {"offset": "0"}), "and after it"


@virtual
async def test_a_commit_of_a_group_that_is_not_known_yet_creates_it() -> None:
    bench = Bench()
    peer = bench.connect()
    bench.topics.update(Topic("T", 1, 1), {})
    fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 3}
    answer = await peer.ask(UPDATE, **fields)
    assert (answer.code, answer.ext) == (0, {})
    assert bench.groups.find("G") is not None
    assert bench.offsets.query("G", "T", 0) == 3


@virtual
async def test_a_commit_of_a_group_that_may_not_be_created_is_kept_until_an_operator_creates_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    peer = bench.connect()
    bench.topics.update(Topic("T", 1, 1), {})
    bench.groups.configure(GroupRules(auto_create=False))
    fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 3}
    assert (await peer.ask(UPDATE, **fields)).code == 0
    assert bench.groups.find("G") is None
    assert bench.offsets.query("G", "T", 0) == 3
    assert "Group G is unknown" in caplog.text
    assert "updateSubGroup" in caplog.text


def test_commits_of_groups_that_may_not_be_created_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.broker.groups.offsets.MAX_UNKNOWN_GROUPS", 2)

    async def main() -> None:
        bench = Bench()
        peer = bench.connect()
        bench.topics.update(Topic("T", 1, 1), {})
        bench.groups.configure(GroupRules(auto_create=False))
        where = {"topic": "T", "queueId": 0, "commitOffset": 3}
        codes = [
            (await peer.ask(UPDATE, consumerGroup=group, **where)).code for group in ("A", "B", "C", "A")
        ]
        assert codes == [0, 0, 26, 0]
        assert bench.offsets.query("C", "T", 0) == -1

    run_virtual(main())


@virtual
async def test_a_commit_that_cannot_be_kept_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """One of a topic that is not there would make the group skip messages, should the topic come back."""

    bench = Bench()
    peer = bench.connect()
    bench.topics.update(Topic("T", 1, 1), {})
    fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 3}
    answer = await peer.ask(UPDATE, **(fields | {"topic": "nope"}))
    assert (answer.code, answer.remark) == (17, "Topic nope not exist!")
    answer = await peer.ask(UPDATE, **(fields | {"consumerGroup": "no group"}))
    assert (answer.code, "no group" in str(answer.remark)) == (29, True)
    answer = await peer.ask(UPDATE, consumerGroup="G", topic="T", queueId=0)
    assert (answer.code, answer.remark) == (29, "Offset is null, topic is T")
    answer = await peer.ask(UPDATE, consumerGroup="G", topic="T", commitOffset=3)
    assert (answer.code, answer.remark) == (29, "QueueId is null, topic is T")
    assert bench.offsets.topics_of_group("G") == []
    assert not caplog.records, "the peer has an answer"


@virtual
async def test_a_refused_commit_that_wants_no_answer_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    peer = bench.connect()
    fields = {"consumerGroup": "G", "topic": "nope", "queueId": "0", "commitOffset": "3"}
    peer.connection.data_received(encode(Command(UPDATE, 1, flag=ONEWAY, ext=fields)))
    await turn()
    assert "Refused a commit of group G by 127.0.0.1" in caplog.text
    assert "Topic nope not exist!" in caplog.text


@virtual
async def test_the_table_cannot_be_filled_with_queues_that_nobody_can_have() -> None:
    bench = Bench()
    peer = bench.connect()
    bench.topics.update(Topic("T", 1, 1), {})
    bench.groups.for_consume("G")
    for queue_id, code in ((65_535, 0), (65_536, 29), (-1, 29)):
        answer = await peer.ask(UPDATE, consumerGroup="G", topic="T", queueId=queue_id, commitOffset=1)
        assert answer.code == code


@virtual
async def test_crashes_that_a_slave_saved_before_its_table_count_when_it_is_promoted() -> None:
    bench = Bench()
    bench.offsets.adopt_crashes([(80, 5)])
    bench.offsets.adopt_crashes([(80, 5), (90, 6)])
    assert bench.offsets.crashes == [(80, 5), (90, 6)]
    assert bench.offsets.recover(bench.store.queues, 100, now_ms=7) == 80
