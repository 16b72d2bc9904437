"""Drives one node: performs its effects as `effects.py` says, and hands it what happens.

A member that waits for its disk, or is stopped for a while, takes in afterwards what happened meanwhile.
With a fuse set, it dies between two effects.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.raft.disk import MemberDisk
from tests.simulation.raft.history import (
    Accepted,
    Alone,
    Committed,
    DeadlinesPassed,
    Expired,
    Flushed,
    Granted,
    Note,
    Outcome,
    Requested,
    Responded,
    RoleTaken,
    Saved,
    Spoke,
    Started,
    Stop,
    Stopped,
    Truncated,
    Wrote,
)

from turbopump.raft import (
    Answered,
    Appended,
    AppendEntries,
    AppendNoOp,
    AppendResult,
    Commit,
    Effect,
    Event,
    Node,
    PeerTakesBatches,
    PendingAppends,
    Received,
    Respond,
    Role,
    RoleChanged,
    Save,
    SavedState,
    Send,
    Synced,
    Tick,
    Truncate,
)
from turbopump.raft.messages import (
    IncomingRequest,
    MemberId,
    OutgoingRequest,
    PeerAnswer,
    PushedEntry,
    VoteAnswer,
    VoteResult,
)

if TYPE_CHECKING:
    from tests.simulation.raft.world import World

APPEND_WAIT_MS = 2500
NOTED_SHARE = 0.3
"""How many commits are noted on disk; a driver does that every few seconds."""
MAX_TIMEOUTS_ALONE = 2
"""A leader without a majority steps down after one timeout; the rest is for late ticks."""
NEVER = float("inf")


class Member:
    """A member of the group: a disk, and while it runs a node."""

    def __init__(self, world: "World", name: MemberId, clock_rate: float, flush_ms: float) -> None:
        self.world = world
        self.name = name
        self.config = world.plan.config(name)
        self.disk = MemberDisk(joined=not world.plan.is_new_group)
        self.node: Node | None = None
        self.life = 0
        """How often it was started or stopped: what is meant for an earlier life is lost."""
        self.fuse: int | None = None
        """After so many effects the member dies."""
        self.usual_flush_ms = flush_ms
        self.usual_disk()
        self._rate = clock_rate
        self._offset = 1_000_000 * world.chance.random()
        self._reset()

    def _reset(self) -> None:
        self.pending = PendingAppends()
        self._saving: Save | None = None
        self.is_frozen = False
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._own: deque[Event] = deque()
        self._has_grown = False
        self._flush_to: int | None = None
        self._tick_at = NEVER
        self._deadline_ms = 0
        self._led_term: int | None = None
        self._requests: dict[int, tuple[MemberId, int, OutgoingRequest, IncomingRequest]] = {}
        self._heard: dict[MemberId, int] = {}
        self._spoken_term = -1

    # --- time ----------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Returns the time of the member's own clock."""
        return int(self._offset + self.world.now * self._rate)

    def world_time(self, own_ms: float) -> float:
        """Returns when the own clock shows a time."""
        return (own_ms - self._offset) / self._rate

    def _schedule_tick(self) -> None:
        assert self.node is not None
        self._deadline_ms = self.node.deadline_ms
        self._await_deadline()

    def _await_deadline(self) -> None:
        at = self.world_time(self._deadline_ms + 0.01)
        if at <= self.world.now:
            at = self.world.now + 1  # a driver turns to other work in between
        if at < self._tick_at:
            if self.world.plan.tick_late_ms:
                at += self.world.chance.random() * self.world.plan.tick_late_ms
            self._tick_at = at
            self.world.at(at, self._tick_due, self.life, at)

    def _tick_due(self, life: int, at: float) -> None:
        if life != self.life or at != self._tick_at or self.node is None:
            return
        self._tick_at = NEVER
        if self.now_ms() < self._deadline_ms:
            self._await_deadline()
        else:
            self.do(self._tick)

    def _tick(self) -> None:
        self._run(Tick())
        if self.node is None or self.node.role is not Role.LEADER or self._saving is not None:
            return
        heard = sorted(self._heard.values(), reverse=True)
        silent = self.now_ms() - heard[self.config.quorum - 2]
        if silent > MAX_TIMEOUTS_ALONE * self.config.leader_timeout_ms + 2 * self.world.plan.tick_late_ms:
            self.world.note(Alone(self.world.now, self.name, self.node.term, silent))

    # --- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts a node from what is on disk."""
        assert self.node is None
        self.life += 1
        self._reset()
        disk, world = self.disk, self.world
        if disk.log.synced_index < disk.log.end_index:  # recovery flushes what it has read
            disk.log.synced_index = disk.log.end_index
            world.note(Flushed(world.now, self.name, disk.log.end_index))
        self.node = world.build_node(
            self.config, disk.start_state(), disk.log, random.Random(world.chance.random())
        )
        node = self.node
        found = tuple(disk.log.entries)
        world.note(Started(world.now, self.name, node.term, node.committed_index, disk.saved.joined, found))
        self._run(Tick())
        if world.plan.take_batches:
            for peer in self.config.peers:
                self.do(self._run, PeerTakesBatches(peer))

    def stop(self, how: Stop) -> None:
        """Ends the process, and loses what `how` says. An unfinished `Save` may be on disk or not."""
        self.life += 1
        self.node = None
        self.fuse = None
        if self._saving is not None and self.world.chance.random() < 0.5:
            self._save(self._saving)
        self._reset()
        if how is Stop.POWER_CUT:
            self.disk.cut_power(self.world.chance)
        elif how is Stop.DISK_LOST:
            self.disk = MemberDisk(joined=False)
        self.world.note(Stopped(self.world.now, self.name, how, self.disk.log.end_index))
        self.world.network.stopped(self)

    def usual_disk(self) -> None:
        """Lets the disk be as fast as it was at first."""
        self.save_ms, self.flush_ms = self.world.plan.save_ms, self.usual_flush_ms

    def freeze(self) -> None:
        """Stops the process from running, as a debugger or a busy machine does."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Lets the process run again."""
        self.is_frozen = False
        self._take_up()

    # --- events --------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether the member cannot take in an event now."""
        return self.is_frozen or self._saving is not None

    def do(self, work: Callable[..., None], *args: Any) -> None:
        """Does something as soon as the member can."""
        if self.node is None:
            return
        if self.is_busy:
            self._inbox.append((work, args))
        else:
            work(*args)

    def event(self, event: Event) -> None:
        """Hands an event to the node."""
        self._run(event)

    def receive(
        self, sender: MemberId, sender_life: int, sent: OutgoingRequest, request: IncomingRequest
    ) -> None:
        """Hands a request to the node, and remembers where its answer goes."""
        request_id = self.world.next_id()
        self._requests[request_id] = (sender, sender_life, sent, request)
        self.world.note(Requested(self.world.now, self.name, request_id, sender, request))
        self._run(Received(request_id, sender, request))

    def answered(self, sender: MemberId, request: OutgoingRequest, answer: PeerAnswer) -> None:
        """Hands an answer to the node."""
        self._heard[sender] = self.now_ms()
        self._run(Answered(sender, request, answer))

    def append(self, names: list[str]) -> bool:
        """Appends what clients sent; returns whether this member takes it."""
        node = self.node
        if node is None or self.is_busy or node.role is not Role.LEADER or node.transferring_to is not None:
            return False
        deadline = self.now_ms() + APPEND_WAIT_MS
        for name in names:
            self._write((self.disk.log.next_entry(node.term, name),))
            index = self.disk.log.end_index
            self.world.note(
                Accepted(self.world.now, self.name, name, node.term, index, self.world_time(deadline))
            )
            self.pending.wait(node.term, index, deadline, partial(self._append_done, name))
        self.world.at(self.world_time(deadline + 1), self._expire_due, self.life)
        self._run(Appended(self.disk.log.end_index))
        return True

    def expire_log(self) -> None:
        """Deletes a part of what is committed here, as retention does."""
        log = self.disk.log
        if self.node is not None and self.node.committed_index > log.begin_index >= 0:
            span = self.node.committed_index - log.begin_index
            log.expire(log.begin_index + 1 + int(self.world.chance.random() * span))
            self.world.note(Expired(self.world.now, self.name, log.begin_index))

    def _expire_due(self, life: int) -> None:
        if life == self.life:
            self.do(self._expire_appends)

    def _expire_appends(self) -> None:
        now_ms = self.now_ms()
        self.pending.expire(now_ms)
        self.world.note(DeadlinesPassed(self.world.now, self.name, self.world_time(now_ms)))

    def _append_done(self, name: str, result: AppendResult) -> None:
        self.world.note(Outcome(self.world.now, self.name, name, result.outcome))
        self.world.append_done(name, result)

    # --- steps and effects ---------------------------------------------------------------------------------

    def _run(self, event: Event) -> None:
        """Steps the node, then with what its own effects cause, until the disk has to be waited for."""
        node = self.node
        if node is None:
            return
        self._own.append(event)
        self._continue()

    def _continue(self) -> None:
        own = self._own
        while own and self._saving is None and self.node is not None:
            self._perform(self.node.step(self.now_ms(), own.popleft()), 0)
        if self.node is not None and self._saving is None:
            self._schedule_tick()

    def _perform(self, effects: list[Effect], place: int) -> None:
        while place < len(effects):
            effect = effects[place]
            place += 1
            if self.fuse is not None:
                self.fuse -= 1
                if self.fuse < 0:
                    self.world.note(Note(self.world.now, f"{self.name} dies before {type(effect).__name__}"))
                    self.world.die(self)
                    return
            if type(effect) is Save and self.save_ms:
                self._saving = effect
                delay = self.save_ms * (0.5 + self.world.chance.random())
                self.world.at(self.world.now + delay, self._save_done, self.life, effects, place)
                return
            _PERFORM[type(effect)](self, effect)
        if self._has_grown:
            self._has_grown = False
            self._make_safe()

    def _save_done(self, life: int, effects: list[Effect], place: int) -> None:
        if life != self.life:
            return
        save, self._saving = self._saving, None
        assert save is not None
        self._save(save)
        self._perform(effects, place)
        self._continue()
        self._take_up()

    def _take_up(self) -> None:
        inbox = self._inbox
        while inbox and not self.is_busy and self.node is not None:
            work, args = inbox.popleft()
            work(*args)

    def _save(self, effect: Save) -> None:
        self.disk.saved = SavedState(effect.term, effect.voted_for, effect.joined)
        self.world.note(Saved(self.world.now, self.name, effect.term, effect.voted_for, effect.joined))

    def _truncate(self, effect: Truncate) -> None:
        log = self.disk.log
        self.world.note(Truncated(self.world.now, self.name, effect.after_index, effect.replacement))
        if effect.replacement is None:
            log.truncate(effect.after_index)
            self._flush_to = None if self._flush_to is None else min(self._flush_to, effect.after_index)
        else:
            log.replace(effect.replacement)
            self._flush_to = None if self._flush_to is None else -1
            self._has_grown = True

    def _append_entries(self, effect: AppendEntries) -> None:
        self._write(effect.entries)

    def _append_no_op(self, effect: AppendNoOp) -> None:
        self._write((self.disk.log.next_entry(effect.term, "no-op"),))
        self._own.append(Appended(self.disk.log.end_index))

    def _write(self, entries: tuple[PushedEntry, ...]) -> None:
        self.disk.log.append(entries)
        self.world.note(Wrote(self.world.now, self.name, entries))
        self._has_grown = True

    def _make_safe(self) -> None:
        log = self.disk.log
        if not self.world.plan.has_power_cuts:
            log.synced_index = log.end_index
            self._own.append(Synced(log.end_index))
        elif self._flush_to is None and log.synced_index < log.end_index:
            self._flush_to = log.end_index
            delay = self.flush_ms * (0.5 + self.world.chance.random())
            self.world.at(self.world.now + delay, self._flush_done, self.life)

    def _flush_done(self, life: int) -> None:
        if life != self.life or self._flush_to is None:
            return
        index, self._flush_to = self._flush_to, None
        log = self.disk.log
        if index > log.synced_index:
            log.synced_index = index
            self.world.note(Flushed(self.world.now, self.name, index))
            self.do(self._report_synced)
        self._make_safe()

    def _report_synced(self) -> None:
        self._run(Synced(self.disk.log.synced_index))

    def _send(self, effect: Send) -> None:
        self._speak(effect.request.term)
        self.world.network.send(self, effect.to, effect.request)

    def _respond(self, effect: Respond) -> None:
        answer = effect.answer
        self.world.note(Responded(self.world.now, self.name, effect.request_id, answer))
        sender, life, sent, request = self._requests.pop(effect.request_id, ("", 0, None, None))
        if type(answer) is VoteAnswer:
            self._speak(answer.term)
            if answer.result is VoteResult.ACCEPT:
                self.world.note(Granted(self.world.now, self.name, request.term, sender))
        if sent is not None:
            self.world.network.answer(self, sender, life, sent, answer)

    def _speak(self, term: int) -> None:
        if term >= 0 and term != self._spoken_term:
            self._spoken_term = term
            self.world.note(Spoke(self.world.now, self.name, term))

    def _role_changed(self, effect: RoleChanged) -> None:
        self.world.note(RoleTaken(self.world.now, self.name, effect.role, effect.term, effect.leader))
        leads = effect.role is Role.LEADER
        if self._led_term is not None and not (leads and effect.term == self._led_term):
            self.pending.role_lost()
        self._led_term = effect.term if leads else None
        if leads:
            self._heard = dict.fromkeys(self.config.peers, self.now_ms())

    def _commit(self, effect: Commit) -> None:
        world, node = self.world, self.node
        assert node is not None
        leads = self._led_term is not None
        world.note(
            Committed(world.now, self.name, self._led_term if leads else node.term, effect.index, leads)
        )
        if world.chance.random() < NOTED_SHARE:
            self.disk.committed_index = effect.index
        self.pending.committed(effect.index)
        world.committed(self, effect.index)


_PERFORM: dict[type, Callable[[Member, Any], None]] = {
    AppendEntries: Member._append_entries,
    AppendNoOp: Member._append_no_op,
    Commit: Member._commit,
    Respond: Member._respond,
    RoleChanged: Member._role_changed,
    Save: Member._save,
    Send: Member._send,
    Truncate: Member._truncate,
}
