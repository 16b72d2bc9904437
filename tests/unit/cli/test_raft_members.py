"""The table of `turbopump raft status`, from what members answered."""

from turbopump.cli.raft_members import GroupTable, group_table
from turbopump.protocol.bodies import RaftPeer, RaftStatus

PEERS = {"n0": "10.0.0.1:40911", "n1": "10.0.0.2:40911", "n2": "10.0.0.3:40911"}


def status(member: str, leader: str, term: int = 3, end: int = 90, reachable: bool = True) -> RaftStatus:
    leads = member == leader
    return RaftStatus(
        group="broker-a", brokerName="broker-a", member=member, leader=leader, term=term, joined=True,
        role="leader" if leads else "follower", endIndex=end, committedIndex=80,
        peers=[
            RaftPeer(member=peer, address=address, isReachable=reachable, matchIndex=70 if leads else None)
            for peer, address in PEERS.items() if peer != member
        ],
    )  # fmt: skip


def test_all_members_answer() -> None:
    found = group_table(
        "broker-a",
        {"b0": status("n0", "n1", end=88), "b1": status("n1", "n1"), "b2": status("n2", "n1")},
        {},
    )
    assert (found.leader, found.leader_address, found.problems) == ("n1", "b1", [])
    assert [row.behind for row in found.members] == [2, 0, 0]
    assert found.lines()[2].split() == ["n0", "follower", "3", "n1", "80/88", "2", "yes", "yes", "b0"]


def test_a_missing_member_is_named() -> None:
    found = group_table("broker-a", {"b1": status("n1", "n1", reachable=False)}, {})
    assert found.problems == [
        "Member n0 at 10.0.0.1:40911 is missing.",
        "Member n2 at 10.0.0.3:40911 is missing.",
    ]
    assert found.members[0].behind == 20


def test_a_group_without_a_leader_says_so() -> None:
    found = group_table("broker-a", {"b0": status("n0", ""), "b2": status("n2", "")}, {})
    assert found.leader == found.leader_address == ""
    assert found.problems[0].startswith("There is no leader")


def test_a_leader_of_an_earlier_term_does_not_count() -> None:
    found = group_table("broker-a", {"b0": status("n0", "n0", term=2), "b2": status("n2", "n2", term=3)}, {})
    assert (found.leader, found.leader_address) == ("n2", "b2")


def test_a_member_of_apache_is_found_by_its_broker_id() -> None:
    found: GroupTable = group_table("broker-a", {"b1": status("n1", "n1")}, {1: "apache:10911"})
    assert found.members[0].broker_address == "apache:10911"
    assert found.problems == []
    followed = group_table("broker-a", {"b1": status("n1", "n0")}, {0: "apache:10911"})
    assert followed.leader_address == "apache:10911"
