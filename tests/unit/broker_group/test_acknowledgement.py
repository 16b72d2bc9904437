"""When a send in a DLedger group is answered, beside one log and one driver played by the test."""

from dataclasses import dataclass, field

import pytest
from tests.unit.store.dledger.kit import CONFIG, body, new_disk

from turbopump.broker.acknowledgement import Safety
from turbopump.broker.dledger.acknowledgement import QuorumAcknowledgement
from turbopump.protocol.codes import ResponseCode
from turbopump.raft import AppendOutcome, AppendResult, PendingAppends
from turbopump.raft.pending_appends import AppendDone
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.flush import Durability

TERM = 3
TIMEOUT_MS = 2500


class NoSyncs:
    """A flusher that is asked nothing."""

    unsynced_bytes = 0

    def durable(self, offset: int, done: object) -> None:
        raise AssertionError("no sync is waited for")

    async def wait_durable(self, offset: int) -> Durability:
        return Durability.DISK


@dataclass
class Driver:
    """Waits as the driver of a member does, on a clock that the test moves."""

    log: EntryLog
    now_ms: int = 0
    pending: PendingAppends = field(default_factory=PendingAppends)

    def when_committed(self, index: int, timeout_ms: int, done: AppendDone) -> None:
        self.pending.wait(TERM, index, self.now_ms + timeout_ms, done)

    def commit(self, index: int) -> None:
        self.log.commit_to(index)
        self.pending.committed(index)

    def move_to(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.pending.expire(now_ms)


@dataclass
class Rule:
    """The rule of a leadership over a log of its own."""

    log: EntryLog = field(default_factory=lambda: EntryLog.open(CONFIG, new_disk()))
    answers: list[Safety] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.driver = Driver(self.log)
        self.rule = QuorumAcknowledgement(
            NoSyncs(), self.log, self.driver, lambda: TIMEOUT_MS, TERM, 2, False, "promise"
        )

    def append(self, count: int = 1) -> int:
        """Appends entries; returns where the log ends behind them."""
        self.log.append([body(number) for number in range(count)], TERM)
        return self.log.end

    def ask(self, end: int) -> None:
        self.rule.when_safe(end, self.answers.append)


@pytest.mark.parametrize("behind", [0, 1, 7, 100])
def test_a_late_caller_waits_for_its_own_entry_not_for_the_last(behind: int) -> None:
    """Under steady sends the last entry is never committed in time for all."""
    one = Rule()
    one.append(5)
    end = one.append()
    index = one.log.end_index
    if behind:
        one.append(behind)
    one.ask(end)
    one.driver.commit(index - 1)
    assert one.answers == []
    one.driver.commit(index)
    assert [answer.durability for answer in one.answers] == ["quorum"]


def test_a_caller_among_steady_appends_is_answered_although_there_is_always_a_later_one() -> None:
    one = Rule()
    for turn in range(300):
        end = one.append()
        one.append(3)  # others, before this caller asks
        one.ask(end)
        one.driver.move_to(turn * 10)
        one.driver.commit(one.log.end_index - 3)
    assert len(one.answers) == 300
    assert all(answer.is_safe for answer in one.answers)


def test_an_offset_inside_a_record_or_at_its_end_belongs_to_its_entry() -> None:
    one = Rule()
    for _ in range(60):  # several files, with blanks at their ends
        one.append()
    one.driver.commit(20)
    for index in range(21, 60):
        place, end = one.log.place_of(index), one.log.end_of(index)
        assert one.log.index_at(end - 1) == one.log.index_at(place) == index


def test_what_is_committed_is_answered_at_once_and_after_the_leadership_nothing_is_safe() -> None:
    one = Rule()
    end = one.append()
    one.driver.commit(0)
    one.ask(end)
    assert (one.answers[0].durability, one.answers[0].term) == ("quorum", TERM)
    one.rule.end_leadership()
    one.ask(end)
    assert one.answers[1].code is ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (AppendOutcome.TIMED_OUT, ResponseCode.SYSTEM_ERROR),
        (AppendOutcome.ROLE_LOST, ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
def test_what_is_not_committed_is_said_to_be_possibly_stored(outcome: AppendOutcome, code: int) -> None:
    one = Rule()
    safety = one.rule._safety(AppendResult(outcome, TERM, 0))
    assert (safety.code, safety.is_safe) == (code, False)
    assert "it may be stored all the same" in safety.remark
