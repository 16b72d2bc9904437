"""Judges the history of a simulated cluster. Pure: history and final state in, anomalies out.

The names are those of Jepsen's checker for logs, and RocketMQ's own:

    lost write             a message that must exist, by its receipt and by what was lost since, does not
    receipt                fewer brokers had a message than its receipt says
    duplicate              one message at two places of the log
    inconsistent offsets   two messages at one offset, or a message elsewhere than its receipt says
    resurrected            a message is back that was cut from the log
    write inversion        a message stands before one that was acknowledged before it was sent
    unseen                 a message in the log that its queue does not show
    non-monotonic poll     a reader was sent back, or forward over messages, without a reason
    skipped poll           a message that the reader never got
    offset beyond end      a committed offset behind the end of its queue
    lost commit            a committed offset went back without a reason
    lost topic             a topic that was acknowledged does not exist
    lost slave commit      what a group committed at a slave was not brought to the master
    early                  a delayed message was delivered before its time
    half visible           a message of a transaction that nobody committed
    aborted read           a message of a transaction that was rolled back, or of an attempt that lost
    decided twice          two answers about the winners of a batch differ
    not a copy             a slave's log differs from its master's, or it does not follow at the end
    no answer              a request without an answer, although nothing was wrong
    deleted early          retention deleted a file that had not expired, or on a slave before its master did
    wrong first offset     a reader of deleted messages was not sent to the first one that is there
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TypeVar

from tests.simulation.cluster.history import (
    CONSUMERS,
    Broken,
    Committed,
    Cut,
    Decided,
    Died,
    Ended,
    Fault,
    Found,
    History,
    Kind,
    Loss,
    Lost,
    Made,
    Moved,
    Muted,
    Opened,
    PairEnd,
    Pulled,
    Sent,
    SlaveCommitted,
    Stored,
    Strayed,
    Unanswered,
    Wrote,
)
from tests.simulation.cluster.retention_check import RetentionCheck

TOPIC = "T"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
WRITTEN_S = 12.0  # a slave has saved what was committed there, also when its disk stalled
SENT_BACK_S = 30.0  # after its start a master has seen its readers: calls to the one before it end in 15 s
REMEMBERED_S = 200.0  # slaves and masters remember a crash for three minutes
SETTLED_S = 4.0  # tables are saved each second, pushed at once, and saved by slaves within a second

PLACES = {
    Kind.PLAIN: (TOPIC,),
    Kind.DELAYED: (SCHEDULE_TOPIC,),
    Kind.HALF: (HALF_TOPIC,),
    Kind.TIMED: (TIMER_TOPIC, TOPIC),  # one that is due already does not wait
}
REWRITTEN = Kind.HALF, Kind.TIMED  # stored again when a check is put off, or on the way around the wheel

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken guarantee."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def check(history: History, ends: list[PairEnd]) -> list[Anomaly]:
    """Returns everything that is wrong."""
    found = [Anomaly(one.name, one.text) for one in history.events if isinstance(one, Broken)]
    for end in ends:
        found += _PairCheck(history, end).run()
    return found


class _PairCheck:
    """The checks of one pair."""

    def __init__(self, history: History, end: PairEnd) -> None:
        self._events = [one for one in history.events if getattr(one, "pair", None) == end.pair]
        self._retention = RetentionCheck(history, end)
        self._end = end = self._retention.end
        self._sent = self._of(Sent)
        self._losses = self._of(Loss)
        self._cuts = self._of(Cut)
        self._faults = self._of(Fault)
        # Messages that were sent to a queue or read from it: when, and their log and queue offsets.
        self._seen: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
        for sent in self._sent:
            if sent.kind is Kind.PLAIN:
                self._seen[sent.queue_id].append((sent.begin, sent.offset, sent.queue_offset))
        for pulled in self._of(Pulled):
            self._seen[pulled.queue_id] += [(pulled.at, one.offset, one.queue_offset) for one in pulled.found]
        self._by_name: dict[str, list[Stored]] = defaultdict(list)
        for stored in end.log:
            self._by_name[stored.name].append(stored)

    def run(self) -> list[Anomaly]:
        found = [
            *self._receipts(),
            *self._survivors(),
            *self._places(),
            *self._offsets_used_twice(),
            *self._order(),
            *self._queues(),
            *self._polls(),
            *self._slave_polls(),
            *self._commits(),
            *self._slave_commits(),
            *self._topics(),
            *self._delays(),
            *self._transactions(),
            *self._ledger(),
            *self._slaves(),
            *self._answers(),
            *(Anomaly(*one) for one in self._retention.run()),
        ]
        return [Anomaly(one.name, f"{self._end.pair}: {one.text}") for one in found]

    def _of(self, kind: type[E]) -> list[E]:
        return [one for one in self._events if isinstance(one, kind)]

    # copies

    def _receipts(self) -> Iterator[Anomaly]:
        for sent in self._sent:
            lost = {one.node for one in self._losses if sent.begin <= one.at <= sent.at}
            lacks = sent.holders + len(lost) < sent.replicas
            if lacks and not self._retention.had_deleted(sent.offset, sent.at):
                yield Anomaly(
                    "receipt",
                    f"{sent.name} at {sent.offset} was acknowledged at {sent.at:.3f} with {sent.replicas} "
                    f"replicas, {sent.holders} brokers had it",
                )

    def _survivors(self) -> Iterator[Anomaly]:
        for sent in self._sent:
            if any(one.topic in PLACES[sent.kind] for one in self._by_name[sent.name]):
                continue
            if self._must_exist(sent):
                yield Anomaly(
                    "lost write",
                    f"{sent.name} at {sent.offset}, acknowledged at {sent.at:.3f} by {sent.node} "
                    f"({sent.durability}, {sent.replicas} replicas, {sent.on_disk} on disk), is gone; lost "
                    f"since: {self._lost_since(sent) or 'nothing'}",
                )

    def _must_exist(self, sent: Sent) -> bool:
        """Whether fewer copies died than the receipt names; a crash of a machine leaves those on disk."""
        if sent.durability == "quorum":
            return True
        lost = self._lost_since(sent)
        if sent.durability == "disk" and lost.get(sent.node) is Lost.MACHINE:
            return True
        whole = sum(why is not Lost.MACHINE for why in lost.values())
        in_memory = min(len(lost) - whole, sent.replicas - sent.on_disk)
        return whole + in_memory < sent.replicas

    def _lost_since(self, sent: Sent) -> dict[str, Lost]:
        lost: dict[str, Lost] = {}
        for one in self._losses:
            if (
                one.at >= sent.begin
                and one.end < sent.end <= one.until
                and lost.get(one.node, Lost.MACHINE) is Lost.MACHINE
            ):
                lost[one.node] = one.why
        return lost

    # places

    def _places(self) -> Iterator[Anomaly]:
        for name, places in self._by_name.items():
            topics = Counter(one.topic for one in places)
            # A half message is written again when its check is put off, a delayed one before its file goes.
            for topic in (TOPIC,) if self._retention.is_used else (TOPIC, SCHEDULE_TOPIC):
                if topics[topic] > 1:
                    offsets = [one.offset for one in places if one.topic == topic]
                    yield Anomaly("duplicate", f"{name} is at {offsets} of the log, in topic {topic}")
        for sent in self._sent:
            is_rewritten = sent.kind is Kind.DELAYED and self._retention.is_used
            for stored in () if is_rewritten or sent.kind in REWRITTEN else self._by_name[sent.name]:
                is_delivered = sent.kind is Kind.DELAYED and stored.topic == TOPIC
                if not is_delivered and stored.offset != sent.offset:
                    yield Anomaly(
                        "inconsistent offsets",
                        f"{sent.name} is at {stored.offset}, its receipt says {sent.offset}",
                    )
                if not is_delivered and self._is_gone(sent):
                    yield Anomaly("resurrected", f"{sent.name} at {sent.offset} was cut, and is back")

    def _is_gone(self, sent: Sent) -> bool:
        """Whether a cut took the message, and no slave was promoted since that had kept it."""
        gone = False
        for cut in sorted(self._cuts, key=lambda one: one.at):
            if sent.at <= cut.at:
                gone = (gone or cut.end <= sent.offset) and cut.adopted < sent.end
        return gone

    def _offsets_used_twice(self) -> Iterator[Anomaly]:
        seen: dict[tuple[int, int], list[tuple[float, int, str]]] = defaultdict(list)
        for sent in self._sent:
            if sent.kind is Kind.PLAIN:
                seen[sent.queue_id, sent.queue_offset].append((sent.at, sent.offset, sent.name))
        for pulled in self._master_pulls():
            for one in pulled.found:
                seen[pulled.queue_id, one.queue_offset].append((pulled.at, one.offset, one.name))
        for stored in self._end.log:
            if stored.topic == TOPIC:
                place = stored.queue_id, stored.queue_offset
                seen[place].append((inf, stored.offset, stored.name))
        for (queue_id, queue_offset), all_seen in seen.items():
            all_seen.sort()
            for (at, offset, name), (later, _, other) in pairwise(all_seen):
                if name != other and not self._is_cut(offset, at, later):
                    yield Anomaly(
                        "inconsistent offsets",
                        f"queue {queue_id} had {name} at {queue_offset} at {at:.3f}, then {other}",
                    )

    def _is_cut(self, offset: int, begin: float, until: float) -> bool:
        return any(begin <= cut.at <= until and cut.end <= offset for cut in self._cuts)

    def _order(self) -> Iterator[Anomaly]:
        """Checks that what was sent after an acknowledgement stands behind it."""
        by_queue: dict[int, list[tuple[Sent, Stored]]] = defaultdict(list)
        for sent in self._sent:
            for stored in self._by_name[sent.name] if sent.kind is Kind.PLAIN else ():
                if stored.topic == TOPIC:
                    by_queue[stored.queue_id].append((sent, stored))
        for queue_id, pairs in by_queue.items():
            pairs.sort(key=lambda pair: pair[1].queue_offset)
            latest = pairs[0][0]
            for sent, _ in pairs[1:]:
                if sent.at < latest.begin:
                    yield Anomaly(
                        "write inversion",
                        f"queue {queue_id}: {sent.name}, acknowledged at {sent.at:.3f}, stands behind "
                        f"{latest.name}, sent at {latest.begin:.3f}",
                    )
                if sent.begin > latest.begin:
                    latest = sent

    # reading

    def _queues(self) -> Iterator[Anomaly]:
        expected: dict[int, list[Stored]] = defaultdict(list)
        for stored in self._end.log:
            if stored.topic == TOPIC:
                expected[stored.queue_id].append(stored)
        for queue_id, all_stored in expected.items():
            shown = self._end.readable.get(queue_id, ())
            names = tuple(one.name for one in all_stored)
            offsets = [one.queue_offset for one in all_stored]
            if offsets != list(range(len(offsets))):
                yield Anomaly("inconsistent offsets", f"queue {queue_id} has offsets {offsets}")
            elif shown != names:
                missing = [name for name in names if name not in shown]
                yield Anomaly("unseen", f"queue {queue_id} shows {len(shown)} of {len(names)}: {missing[:5]}")

    def _master_pulls(self) -> list[Pulled]:
        return [one for one in self._of(Pulled) if not one.is_of_slave]

    def _polls(self) -> Iterator[Anomaly]:
        for group in {CONSUMERS: None} | {one.group: None for one in self._of(Pulled)}:
            yield from self._skipped(group)
        for moved in self._of(Moved):
            is_forward = moved.after > moved.before
            if not self._retention.allows(moved) if is_forward else not self._may_go_back(moved):
                yield Anomaly(
                    "non-monotonic poll",
                    f"queue {moved.queue_id}: sent from {moved.before} to {moved.after} at {moved.at:.3f}",
                )

    def _may_go_back(self, moved: Moved) -> bool:
        """Whether a reader was sent back with a reason. Before a second start there is none.

        A broker that was killed cannot know that nothing is lost: soon after its start, readers go back to
        what is committed. Later they go back only where messages of their queue were lost and until they have
        read there again, or over what they have not committed. They never go back behind a commit that had
        settled, except to what was lost. Readers that change between masters and slaves may be sent back as
        long as brokers remember the start: where an offset comes from they do not always know.
        """
        begins = [min(opened.began_at, opened.at) for opened in self._of(Opened)]
        begins = [at for at in begins if at <= moved.at]
        if len(begins) < 2 or self._end.is_group:
            return False
        if moved.group != CONSUMERS:
            return moved.at - begins[-1] <= REMEMBERED_S
        if (settled := self._settled(begins[-1]).get(moved.queue_id)) is not None:
            lost = self._first_lost(moved.queue_id, settled.at, moved.at)
            if moved.after < min(settled.offset, lost):
                return False
        if moved.at - begins[-1] <= SENT_BACK_S:
            return True
        has_read = any(
            begins[-1] < pulled.at < moved.at and pulled.group == CONSUMERS
            for pulled in self._master_pulls()
            if pulled.queue_id == moved.queue_id
        )
        if not has_read and self._first_lost(moved.queue_id, 0.0, moved.at) <= moved.before:
            return True
        committed = [
            one.offset for one in self._of(Committed) if one.queue_id == moved.queue_id and one.at <= moved.at
        ]
        return bool(committed) and committed[-1] <= moved.after

    def _first_lost(self, queue_id: int, begin: float, until: float) -> float:
        """Returns the first offset of a queue that a cut has taken from its readers between two times."""
        taken = [
            queue_offset
            for cut in self._cuts
            if begin <= cut.at <= until
            for at, offset, queue_offset in self._seen[queue_id]
            if at <= cut.at and offset >= cut.end
        ]
        return min(taken, default=inf)

    def _unknown_below(self, queue_id: int, group: str) -> int:
        """Returns below which offset readers go on over what a broker stores that began with an empty disk.

        It knows nothing of the offsets that its readers had; nor do its slaves know of those that they gave
        out of the log before. Both are documented limits.
        """
        begun = [cut.at for cut in self._cuts if cut.end == 0]
        had = [
            one.queue_offset + 1
            for pulled in self._of(Pulled)
            if pulled.queue_id == queue_id and pulled.group == group
            if any(pulled.at <= at or pulled.is_of_slave for at in begun)
            for one in pulled.found
            if not self._is_at_end(queue_id, one)
        ]
        return max(had, default=0)

    def _is_at_end(self, queue_id: int, found: Found) -> bool:
        """Whether a message is still at its offset of a queue."""
        names = self._end.readable.get(queue_id, ())
        return found.queue_offset < len(names) and names[found.queue_offset] == found.name

    def _skipped(self, group: str) -> Iterator[Anomaly]:
        seen = {
            (pulled.queue_id, one.queue_offset, one.name)
            for pulled in self._of(Pulled)
            for one in pulled.found
            if pulled.group == group
        }
        for queue_id, names in self._end.readable.items():
            known_from = self._unknown_below(queue_id, group)
            skipped = [
                (offset, name)
                for offset, name in enumerate(names)
                if offset >= known_from
                and (queue_id, offset, name) not in seen
                and name not in self._retention.expired
            ]
            if skipped:
                yield Anomaly("skipped poll", f"queue {queue_id}: {group} never got {skipped[:5]}")

    def _slave_polls(self) -> Iterator[Anomaly]:
        """Checks that slaves give what their masters had at these places, and lead nobody over messages."""
        known: dict[tuple[int, int], set[str]] = defaultdict(set)
        for sent in self._sent:
            if sent.kind is Kind.PLAIN:
                known[sent.queue_id, sent.queue_offset].add(sent.name)
        for pulled in self._master_pulls():
            for one in pulled.found:
                known[pulled.queue_id, one.queue_offset].add(one.name)
        for queue_id, names in self._end.readable.items():
            for offset, name in enumerate(names):
                known[queue_id, offset].add(name)
        for pulled in self._of(Pulled):
            for one in pulled.found if pulled.is_of_slave else ():
                names = known[pulled.queue_id, one.queue_offset]
                if one.name not in names and not any(cut.end <= one.offset for cut in self._cuts):
                    yield Anomaly(
                        "inconsistent offsets",
                        f"a slave gave {one.name} at {one.queue_offset} of queue {pulled.queue_id} at "
                        f"{pulled.at:.3f}, which is {sorted(names)}",
                    )
        for strayed in self._of(Strayed):
            yield Anomaly(
                "skipped poll",
                f"{strayed.node} led a reader of queue {strayed.queue_id} from {strayed.before} to "
                f"{strayed.after} at {strayed.at:.3f}",
            )

    # tables

    def _commits(self) -> Iterator[Anomaly]:
        for queue_id, offset in self._end.offsets.items():
            end = len(self._end.readable.get(queue_id, ()))
            if offset > end:
                yield Anomaly("offset beyond end", f"queue {queue_id}: {offset} of {end}")
        for opened in self._of(Opened):
            yield from self._kept_at(opened.at, opened.offsets)
            for queue_id, offset in opened.offsets.items():
                if offset > opened.ends.get(queue_id, 0):
                    yield Anomaly(
                        "offset beyond end",
                        f"queue {queue_id}: {offset} of {opened.ends.get(queue_id, 0)} at {opened.at:.3f}",
                    )
        yield from self._kept_at(inf, self._end.offsets)

    def _kept_at(self, until: float, offsets: dict[int, int]) -> Iterator[Anomaly]:
        """Checks that a table of offsets has everything that was committed and settled by then."""
        for queue_id, one in self._settled(until).items():
            wanted = min(one.offset, self._first_lost(queue_id, one.at, until))
            if offsets.get(queue_id, 0) < wanted:
                yield Anomaly(
                    "lost commit",
                    f"queue {queue_id}: {one.offset} was committed at {one.at:.3f}; at {until:.3f} it is "
                    f"{offsets.get(queue_id, -1)}",
                )

    def _settled(self, until: float) -> dict[int, Committed]:
        """Returns by queue the last commit that had settled by then, if none went back since."""
        kept: dict[int, Committed] = {}
        for one in self._of(Committed):
            if one.at < until and one.queue_id in kept and one.offset < kept[one.queue_id].offset:
                del kept[one.queue_id]
            if one.at + SETTLED_S < until and self._is_settled(one.at):
                kept[one.queue_id] = one
        return kept

    def _slave_commits(self) -> Iterator[Anomaly]:
        """Checks that the master has what was committed at its slaves, and all queues reach so far."""
        last: dict[int, SlaveCommitted] = {}
        for one in self._of(SlaveCommitted):
            if not self._may_forget(one) and self._first_lost(one.queue_id, one.at, inf) >= one.offset:
                last[one.queue_id] = one
            else:
                last.pop(one.queue_id, None)
        for queue_id, one in last.items():
            found = self._end.slave_group.get(queue_id, -1)
            if found < one.offset:
                yield Anomaly(
                    "lost slave commit",
                    f"queue {queue_id}: {one.offset} was committed at {one.node} at {one.at:.3f}; at the end "
                    f"the master has {found}",
                )
        if self._was_cut():
            return  # a reader of a slave that had kept the tail may have committed its offsets at the master
        for queue_id, offset in self._end.slave_group.items():
            if offset > (end := len(self._end.readable.get(queue_id, ()))):
                yield Anomaly(
                    "offset beyond end", f"queue {queue_id}: {offset} of {end}, committed at slaves"
                )

    def _may_forget(self, one: SlaveCommitted) -> bool:
        """Whether the slave died before it had saved a commit, or lost its disk or the last message since."""
        died = any(
            died.node == one.node and one.at <= died.at < one.at + WRITTEN_S for died in self._of(Died)
        )
        return died or any(
            loss.node == one.node and loss.at >= one.at and (loss.why is Lost.DISK or loss.end <= one.last)
            for loss in self._losses
        )

    def _was_cut(self) -> bool:
        """Whether a cut took messages that were there."""
        return any(sent.end > cut.end and sent.begin < cut.at for sent in self._sent for cut in self._cuts)

    def _is_settled(self, at: float) -> bool:
        """Whether what was acknowledged at that time had time to reach the disk and the slaves."""
        return not any(fault.begin < at + SETTLED_S and at < fault.until for fault in self._faults)

    def _topics(self) -> Iterator[Anomaly]:
        for made in self._of(Made):
            if any(cut.end == 0 and cut.at >= made.at for cut in self._cuts):
                continue  # the master's disk was replaced by an empty one
            is_kept = self._end.is_group or self._is_settled(made.at)
            if is_kept and self._end.topics.get(made.topic) != made.queues:
                yield Anomaly(
                    "lost topic",
                    f"{made.topic} was made with {made.queues} queues at {made.at:.3f}; at the end it has "
                    f"{self._end.topics.get(made.topic)}",
                )

    # messages that wait

    def _delays(self) -> Iterator[Anomaly]:
        delay_ms = {sent.name: sent.delay_s * 1000 for sent in self._sent if sent.kind is Kind.DELAYED}
        for sent in self._sent:
            if sent.kind is Kind.TIMED:
                yield from self._timer(sent, self._by_name[sent.name])
        for name, places in self._by_name.items():
            waited = [one for one in places if one.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)]
            delivered = [one for one in places if one.topic == TOPIC]
            if waited and not delivered and name not in self._retention.rewritten_and_lost:
                yield Anomaly("lost write", f"{name} at {waited[0].offset} was never delivered")
            if waited and delivered and name in delay_ms:
                took_ms = delivered[0].stored_ms - waited[0].stored_ms
                if took_ms < delay_ms[name] - self._end.clock_jumps_ms:
                    yield Anomaly("early", f"{name} waited {took_ms} of {delay_ms[name]:.0f} ms")

    def _timer(self, sent: Sent, places: list[Stored]) -> Iterator[Anomaly]:
        """Checks the time of a timed message, to the millisecond: its broker delivers by its own clock."""
        waited = [one.stored_ms for one in places if one.offset == sent.offset]
        for one in places:
            if one.topic == TOPIC and waited:
                due_ms = sent.due_ms or waited[0] + round(1000 * sent.delay_s)
                if one.offset != sent.offset and one.stored_ms < due_ms:
                    yield Anomaly("early", f"{sent.name} came {due_ms - one.stored_ms} ms before its time")

    def _ledger(self) -> Iterator[Anomaly]:
        """Checks that each batch has one result, and that consumers see the rows of its winners only."""
        answers: dict[int, list[Decided]] = defaultdict(list)
        for one in self._of(Decided):
            answers[one.batch].append(one)
        for batch, given in answers.items():
            for one, other in pairwise(given):
                if one.tokens != other.tokens and not self._is_cut(one.end - 1, one.begin, other.at):
                    yield Anomaly("decided twice", f"batch {batch}: {one.tokens}, then {other.tokens}")
        winners = self._end.winners
        if winners is None:
            return
        for batch, given in answers.items():
            last, found = given[-1], winners.get(batch)
            if found != last.tokens and not self._is_cut(last.end - 1, last.begin, inf):
                name = "lost write" if found is None else "decided twice"
                yield Anomaly(name, f"batch {batch}: {last.tokens} at {last.at:.3f}, at the end {found}")
        for wrote in self._of(Wrote):
            yield from self._rows(wrote, winners.get(wrote.batch))

    def _rows(self, wrote: Wrote, winners: tuple[str, ...] | None) -> Iterator[Anomaly]:
        for name in wrote.names:
            topics = {one.topic for one in self._by_name[name]}
            has_won = wrote.token in (winners or ())
            if TOPIC in topics and not has_won:
                word = "half visible" if winners is None else "aborted read"
                yield Anomaly(word, f"{name} of {wrote.token}; the winners of {wrote.batch} are {winners}")
            if name in self._retention.rewritten_and_lost:
                continue
            is_kept = wrote.end and not self._is_cut(wrote.end - 1, wrote.begin, inf)
            if has_won and TOPIC not in topics and (is_kept or HALF_TOPIC in topics):
                yield Anomaly(
                    "lost write", f"{name} of {wrote.token}, which has won {wrote.batch}, is not seen"
                )

    def _transactions(self) -> Iterator[Anomaly]:
        rows = {name for one in self._of(Wrote) for name in one.names}
        ends: dict[str, list[Ended]] = defaultdict(list)
        for one in self._of(Ended):
            ends[one.name].append(one)
        for name, places in self._by_name.items():
            is_half = name not in rows and any(one.topic == HALF_TOPIC for one in places)
            delivered = [one for one in places if one.topic == TOPIC]
            wanted = {one.is_commit for one in ends[name]}
            if is_half and delivered and not wanted:
                yield Anomaly("half visible", f"{name} at {delivered[0].offset} was never committed")
            if is_half and delivered and wanted == {False}:
                yield Anomaly("aborted read", f"{name} at {delivered[0].offset} was rolled back")
            decided = [one for one in ends[name] if one.is_acknowledged]
            is_kept = any(not self._has_lost_since(one.begin) for one in decided)
            is_kept = is_kept and name not in self._retention.rewritten_and_lost
            if is_half and not delivered and wanted == {True} and is_kept:
                yield Anomaly("lost write", f"{name} was committed and is not delivered")
            if is_half and len(wanted) == 2 and is_kept and ends[name][0].is_acknowledged:
                yield from self._first_decision(ends[name][0], bool(delivered))

    def _first_decision(self, first: Ended, is_delivered: bool) -> Iterator[Anomaly]:
        """Checks that a transaction has ended as it was first decided, whatever was asked for after that."""
        if self._has_lost_since(first.begin) or is_delivered is first.is_commit:
            return
        word = "lost write" if first.is_commit else "aborted read"
        was = "committed" if first.is_commit else "rolled back"
        yield Anomaly(word, f"{first.name} was {was} first at {first.begin:.3f}, then the other way")

    def _has_lost_since(self, at: float) -> bool:
        return not self._end.is_group and any(one.at >= at for one in (*self._losses, *self._cuts))

    # the rest

    def _slaves(self) -> Iterator[Anomaly]:
        for slave in self._end.slaves:
            if slave.equal != slave.end:
                yield Anomaly(
                    "not a copy",
                    f"the log of {slave.node} ends at {slave.end}, and equals its master's up to "
                    f"{slave.equal}; it is {slave.state}",
                )
            elif slave.state != "following" or slave.end != self._end.log_end:
                yield Anomaly(
                    "not a copy",
                    f"{slave.node} is {slave.state} at {slave.end}; its master's log ends at "
                    f"{self._end.log_end}",
                )

    def _answers(self) -> Iterator[Anomaly]:
        for one in self._of(Unanswered):
            if any(
                muted.begin <= one.at and one.begin <= muted.until and one.what.endswith(muted.node)
                for muted in self._of(Muted)
            ):
                continue
            yield Anomaly("no answer", f"{one.what} of {one.begin:.3f} had no answer at {one.at:.3f}")
