"""Apache's brokers, which cannot sign between brokers, beside guarded ones that trust their address."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from turbopump import Admin, Message, Producer
from turbopump.client.message import SendStatus
from turbopump.client.options import ClientOptions
from turbopump.protocol.bodies import KVTable
from turbopump.protocol.codes import RequestCode

from . import guarded, peers, replica_pair
from .access_control import CONF, V4, V5
from .asking import ask, asked
from .dledger_group import APACHE, DLedgerBrokers, compared
from .replica_pair import eventually

TRUSTED = {"authTrustedPeers": peers.HOST}
APACHES = 2  # the number of Apache's node
SIGNS = {
    key: value for key, value in CONF[V5].items() if "Provider" in key
}  # they keep whom a slave signs as
TOPIC, QUEUES, MESSAGES = "orders", 2, 50
COPIED = SendStatus.SEND_OK


@pytest.mark.parametrize("kind", [V4, pytest.param(V5, marks=pytest.mark.long)])
def test_an_apache_slave_copies_the_log_of_a_guarded_master_that_trusts_its_address(
    kind: str, tmp_path: Path
) -> None:
    """Since 5.3 slaves sign what they ask for besides the log, so this one has the topic as well."""
    signs = kind == V5
    conf = {**replica_pair.MASTER, **TRUSTED}
    master = guarded.start(tmp_path / "master", conf=conf, guards_names=signs)
    slave_conf = {**replica_pair.SLAVE, **SIGNS, guarded.INNER_KEY: guarded.USERS[guarded.INNER_KEY]}
    with master, peers.join(master, tmp_path / "slave", replica_pair.BROKER, slave_conf, kind) as slave:
        with master.admin() as admin:
            admin.topics.create(TOPIC, queues=QUEUES)
        bodies = send_until_copied(master)

        def begins_equal() -> bool:
            end = extent_of(slave)
            logs = [replica_pair.log_bytes(one, 0, end) for one in (master, slave)]
            return logs[0] == logs[1] and all(body in logs[1] for body in bodies)

        eventually(begins_equal, "the slave has another log than the master")
        if signs:
            eventually(lambda: read(slave) == set(bodies), "the slave does not give the messages out")


def send_until_copied(master: guarded.GuardedCluster) -> list[bytes]:
    """Sends until so many messages in a row were answered with a copy; returns what was sent."""
    bodies: list[bytes] = []
    with Producer(
        "senders", name_servers=master.namesrv, send_msg_timeout=30.0, **master.options
    ) as producer:

        def copied() -> bool:
            bodies.append(b"message %d." % len(bodies))
            return producer.send(Message(TOPIC, bodies[-1])).status is COPIED

        eventually(copied, "no send was answered SEND_OK")
        assert all(copied() for _ in range(MESSAGES))
    return bodies


def extent_of(broker: peers.Cluster) -> int:
    """Returns where the log of a broker without access control ends."""
    body = asked(broker.broker_addr, RequestCode.GET_BROKER_RUNTIME_INFO).body
    return int(KVTable.decode(body).table["commitLogMaxOffset"])


def read(broker: peers.Cluster) -> set[bytes]:
    pulled = [replica_pair.pull_all(broker.broker_addr, TOPIC, queue) for queue in range(QUEUES)]
    return {body for bodies in pulled for body in bodies}


@pytest.mark.long
def test_an_apache_node_is_a_member_of_a_guarded_group_that_trusts_its_address(tmp_path: Path) -> None:
    key = base64.b64encode(b"k" * 32).decode()
    conf = {**guarded.USERS, **TRUSTED, "authKey": key}
    with DLedgerBrokers(tmp_path, (peers.OURS, peers.OURS, APACHE), conf=conf) as group:
        leader = group.brokers[group.lead_with(peers.OURS)]
        signing: ClientOptions = {"access_key": guarded.ROOT[0], "secret_key": guarded.ROOT[1]}
        with Admin(group.namesrv, **signing) as admin:
            admin.topics.create(TOPIC, queues=QUEUES)
        sent = [b"message %d." % number for number in range(MESSAGES)]
        with Producer("senders", name_servers=group.namesrv, send_msg_timeout=30.0, **signing) as producer:
            for body in sent:
                assert producer.send(Message(TOPIC, body)).status is COPIED
        assert (
            ask(
                leader.broker_addr,
                RequestCode.QUERY_CONSUMER_OFFSET,
                consumerGroup="g",
                topic=TOPIC,
                queueId=0,
            ).code
            == 16
        )
        group.expect(
            lambda: all(body in stored(group.brokers[APACHES]) for body in sent),
            "Apache's member lacks messages",
        )
        for number in range(3):
            group.stop(number)
        entries = [[compared(entry) for entry in group.entries(number)] for number in range(3)]
        common = min(map(len, entries))
        assert entries[0][:common] == entries[1][:common] == entries[2][:common]
        bodies = b"".join(entry.body for entry in group.entries(APACHES))
        assert all(body in bodies for body in sent)


def stored(broker: peers.Cluster) -> bytes:
    """Returns what is in the files of a member's log."""
    return b"".join(file.read_bytes() for file in sorted(broker.store_dir.rglob("data/*")))
