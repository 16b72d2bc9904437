"""What a member answers on its port: good, misdirected and malformed requests."""

from __future__ import annotations

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.replication.dledger.kit import GROUP, GroupBench, MemberBench
from tests.unit.store.dledger.kit import body

from turbopump.protocol.dledger import messages
from turbopump.protocol.dledger.codes import DLedgerCode, DLedgerRequestCode, PushType
from turbopump.protocol.dledger.entry import DLedgerEntry, entry_of

Code = DLedgerRequestCode


async def led() -> tuple[GroupBench, MemberBench, MemberBench]:
    """A group, its leader and a follower."""
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.committed(leader, 1)
    await group.until_committed(1)
    return group, leader, group.followers()[0]


def heartbeat(leader: str, to: str, term: int, group: str = GROUP) -> messages.LeaderHeartbeatBody:
    return messages.LeaderHeartbeatBody(group=group, leaderId=leader, localId=leader, remoteId=to, term=term)


@virtual
async def test_a_heartbeat_is_answered_with_nothing_but_its_code():
    group, leader, follower = await led()
    beat = heartbeat(leader.member, follower.member, leader.server.term)
    command = await group.ask(follower.member, Code.HEART_BEAT, beat.encode())
    assert (command.code, command.body) == (200, b'{"code":200,"term":-1}')
    await group.stop()


@virtual
async def test_a_leader_is_known_as_ours_or_apaches_by_the_language_of_its_requests():
    group, leader, follower = await led()
    assert leader.server.is_leader_ours
    assert follower.server.is_leader_ours
    beat = heartbeat(leader.member, follower.member, leader.server.term)
    await group.ask(follower.member, Code.HEART_BEAT, beat.encode(), language="JAVA")
    assert not follower.server.is_leader_ours
    await group.stop()


@virtual
async def test_a_wrong_group_and_a_wrong_receiver_are_refused_in_the_body():
    group, leader, follower = await led()
    term = leader.server.term
    beat = heartbeat(leader.member, follower.member, term, group="another")
    answer = await group.answer(follower.member, beat, Code.HEART_BEAT)
    assert (answer.code, answer.leaderId) == (DLedgerCode.UNKNOWN_GROUP, leader.member)
    answer = await group.answer(follower.member, heartbeat(leader.member, "n7", term), Code.HEART_BEAT)
    assert (answer.code, answer.remoteId) == (DLedgerCode.UNKNOWN_MEMBER, "n7")
    await group.stop()


@virtual
async def test_a_leader_that_is_no_member_is_refused():
    group, leader, follower = await led()
    beat = heartbeat("n9", follower.member, leader.server.term)
    answer = await group.answer(follower.member, beat, Code.HEART_BEAT)
    assert (answer.code, answer.term) == (DLedgerCode.UNKNOWN_MEMBER, leader.server.term)
    vote = messages.VoteRequestBody(
        group=GROUP, leaderId="n9", localId="n9", remoteId=follower.member, term=9
    )
    answer = await group.answer(follower.member, vote, Code.VOTE)
    assert isinstance(answer, messages.VoteAnswerBody)
    assert (answer.voteResult, answer.localId) == ("REJECT_UNKNOWN_LEADER", "n9")
    assert follower.server.leader == leader.member
    await group.stop()


@virtual
async def test_an_unknown_request_has_the_answer_of_apache():
    group, _, follower = await led()
    for code in (Code.APPEND, Code.PULL, 51999):
        answer = await group.ask(follower.member, code, b"{}")
        assert (answer.code, answer.remark) == (3, f" request type {code:d} not supported")
    await group.stop()


@virtual
async def test_a_malformed_body_is_answered_and_changes_nothing():
    group, leader, follower = await led()
    for code in (Code.METADATA, Code.GET, Code.VOTE, Code.HEART_BEAT, Code.PUSH, Code.LEADERSHIP_TRANSFER):
        for bad in (b"", b"{", b"[]", b'{"term":"x"}', b'{"entry":7,"type":"APPEND"}', b"\xff\xfe"):
            answer = await group.ask(follower.member, code, bad)
            assert answer.is_response
            assert answer.code == 1 or messages.decode_answer(code, answer.body).code == 401
    assert (await group.committed(leader, 2)).outcome == "committed"
    await group.until_committed(1, 2)
    await group.stop()


GOOD = entry_of(body(9), 2, 1, 300)


@pytest.mark.parametrize(
    "entry",
    [
        msgspec.structs.replace(GOOD, magic=2),
        msgspec.structs.replace(GOOD, index=-1),
        msgspec.structs.replace(GOOD, term=99),
        msgspec.structs.replace(GOOD, pos=-1),
        msgspec.structs.replace(GOOD, size=7),
        entry_of(b"", 2, 1, 300),
        entry_of(bytes(1 << 14), 2, 1, 300),
    ],
)
@virtual
async def test_an_entry_that_cannot_be_one_is_refused(entry: DLedgerEntry):
    group, leader, follower = await led()
    end = follower.log.end
    push = messages.PushRequestBody(
        entry=entry,
        group=GROUP,
        leaderId=leader.member,
        localId=leader.member,
        remoteId=follower.member,
        term=leader.server.term,
        type=str(PushType.APPEND),
    )
    answer = await group.answer(follower.member, push, Code.PUSH)
    assert (answer.code, follower.log.end) == (DLedgerCode.UNEXPECTED_ARGUMENT, end)
    await group.stop()


@virtual
async def test_an_entry_of_the_leader_at_another_offset_is_answered_and_the_member_goes_on(caplog):
    group, leader, follower = await led()
    misplaced = entry_of(body(9), follower.log.end_index + 1, leader.server.term, 12_345)
    push = messages.PushRequestBody(
        entry=misplaced,
        group=GROUP,
        leaderId=leader.member,
        localId=leader.member,
        remoteId=follower.member,
        term=leader.server.term,
    )
    answer = await group.answer(follower.member, push, Code.PUSH)
    assert answer.code == DLedgerCode.DISK_ERROR
    assert "mappedFileSizeCommitLog" in caplog.text
    assert (await group.committed(leader, 2)).outcome == "committed"
    await group.until_committed(1, 2)
    await group.stop()


@virtual
async def test_members_and_leader_are_told():
    group, leader, follower = await led()
    question = messages.PeersRequestBody(group=GROUP, remoteId=follower.member)
    answer = await group.answer(follower.member, question, Code.METADATA)
    assert isinstance(answer, messages.PeersAnswerBody)
    assert answer.leaderId == leader.member
    assert answer.peers == {member: f"{ip}:40911" for member, ip in group.ips.items()}
    await group.stop()


@virtual
async def test_a_leader_gives_one_committed_entry():
    group, leader, follower = await led()
    question = messages.GetEntriesRequestBody(group=GROUP, remoteId=leader.member, beginIndex=1)
    answer = await group.answer(leader.member, question, Code.GET)
    assert isinstance(answer, messages.EntriesAnswerBody)
    assert answer.entries == [leader.log.entry(1)]
    beyond = messages.GetEntriesRequestBody(group=GROUP, remoteId=leader.member, beginIndex=99)
    assert (await group.answer(leader.member, beyond, Code.GET)).code == DLedgerCode.INDEX_OUT_OF_RANGE
    question = messages.GetEntriesRequestBody(group=GROUP, remoteId=follower.member, beginIndex=1)
    assert (await group.answer(follower.member, question, Code.GET)).code == DLedgerCode.NOT_LEADER
    await group.stop()


@virtual
async def test_a_tool_transfers_the_leadership_by_a_request_to_the_leader():
    group, leader, follower = await led()
    term = leader.server.term
    question = messages.TransferRequestBody(
        group=GROUP,
        remoteId=leader.member,
        transferId=leader.member,
        transfereeId=follower.member,
        term=term,
    )
    answer = await group.answer(leader.member, question, Code.LEADERSHIP_TRANSFER)
    assert (answer.code, answer.term) == (DLedgerCode.SUCCESS, term + 1)
    assert (await group.leader()).member == follower.member
    await group.stop()
