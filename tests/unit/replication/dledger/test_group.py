"""The settings of a group, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from turbopump.replication.dledger.group import MAX_MEMBERS, DLedgerGroup

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
