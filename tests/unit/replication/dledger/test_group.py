"""The settings of a group, and what is said about wrong ones."""

from __future__ import annotations

import pytest
from tests.unit.replication.dledger.kit import FAST

from turbopump.raft import NodeConfig
from turbopump.replication.dledger.group import MAX_MEMBERS, DLedgerGroup
from turbopump.replication.dledger.timings import DLedgerTimings

PEERS = "n0-10.0.0.1:40911; n1-broker-b.example:40911;n2-[fd00::1]:40911;"


def test_members_are_read_with_their_addresses():
    group = DLedgerGroup.parse("broker-a", "n1", PEERS)
    assert dict(group.addresses) == {
        "n0": "10.0.0.1:40911",
        "n1": "broker-b.example:40911",
        "n2": "[fd00::1]:40911",
    }
    assert (group.peers, group.own_address) == (("n0", "n2"), "broker-b.example:40911")
    assert group.node_config().quorum == 2


@pytest.mark.parametrize(
    ("name", "own_id", "peers", "message"),
    [
        ("", "n0", PEERS, "dLegerGroup must be the name"),
        ("g", "n3", PEERS, "dLegerSelfId must be one of n0, n1, n2, got 'n3'"),
        ("g", "n0", "", "dLegerSelfId must be one of dLegerPeers"),
        ("g", "n0", "n0-10.0.0.1", "dLegerPeers must be n0-host:port"),
        ("g", "n0", "10.0.0.1:40911", "dLegerPeers must be n0-host:port"),
        ("g", "n0", "-10.0.0.1:40911", "dLegerPeers must be n0-host:port"),
        ("g", "n0", "n0-h:1;n0-i:1", "'n0' twice"),
        ("g", "n0", "n0-h:1;n1-h:1", "h:1 twice"),
    ],
)
def test_a_wrong_setting_is_named(name, own_id, peers, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        DLedgerGroup.parse(name, own_id, peers)


def test_a_group_has_a_bound():
    many = [f"n{number}-h:{number + 1}" for number in range(MAX_MEMBERS + 1)]
    DLedgerGroup.parse("g", "n0", ";".join(many[:-1]))
    with pytest.raises(ValueError, match="at most 31 members, got 32"):
        DLedgerGroup.parse("g", "n0", ";".join(many))


def test_without_settings_a_node_has_the_intervals_of_dledger():
    group = DLedgerGroup.parse("g", "n0", PEERS)
    assert group.node_config() == NodeConfig("n0", ("n0", "n1", "n2"))


def test_a_node_has_the_intervals_and_the_preferred_leaders_that_are_set():
    group = DLedgerGroup.parse("g", "n0", PEERS)
    config = group.node_config(FAST, " n2;n0; n2;")
    assert config.preferred_leaders == ("n2", "n0")
    assert (config.heartbeat_interval_ms, config.leader_timeout_ms) == (200, 600)
    assert (config.min_vote_wait_ms, config.max_vote_wait_ms) == (50, 200)


def test_a_preferred_leader_is_a_member():
    group = DLedgerGroup.parse("g", "n0", PEERS)
    with pytest.raises(ValueError, match="preferredLeaderId must be of n0, n1, n2, got 'n7'"):
        group.node_config(preferred_leaders="n1;n7")


@pytest.mark.parametrize("field", ["heartbeat_interval_ms", "max_missed_heartbeats", "commit_push_ms"])
def test_an_interval_is_positive(field):
    assert getattr(DLedgerTimings(**{field: 1}), field) == 1
    with pytest.raises(ValueError, match=f"{field} must be positive, got 0"):
        DLedgerTimings(**{field: 0})


def test_vote_waits_are_a_range():
    DLedgerTimings(min_vote_wait_ms=100, max_vote_wait_ms=100)
    with pytest.raises(ValueError, match="min_vote_wait_ms must be at most 99, got 100"):
        DLedgerTimings(min_vote_wait_ms=100, max_vote_wait_ms=99)
