"""Every command of `mqadmin` 4.5.1 on our servers: none fails, and each prints what it is asked for.

The commands that later versions have too are compared with Apache's output in test_mqadmin.py. Here it is
enough that the oldest tools, with their own requests and headers, still work; `-m long` shows that Apache's
4.9.7 passes the same table.
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import again

from . import artifacts, peers
from .console import Console
from .mqadmin_script import CONF

VERSION = artifacts.JAVA_CLIENTS[0]
COMMAND = re.compile(r"^ {3}(\w+) {2,}", re.MULTILINE)
EXCEPTION = re.compile(r"\b\w*(?:Exception|Error)\b:?|CODE: \d+")


@dataclass(frozen=True)
class Row:
    """A command, and a text that it must print. `until`: it goes on for ever, until it has said so."""

    line: str
    prints: str
    until: str = ""


# In an order in which each has something to work on; the group `live` has a member, and has read `many`.
ROWS = (
    Row("clusterList", "broker-a"),
    Row("updateTopic -b {broker} -t made -r 4 -w 4", "create topic to {broker} success."),
    Row("updateTopic -c DefaultCluster -t made2", "create topic to {broker} success."),
    Row("updateTopicPerm -b {broker} -t made -p 4", "update topic perm"),
    Row("topicRoute -t many", "broker-a"),
    Row("topicStatus -t many", "broker-a"),
    Row("topicClusterList -t many", "DefaultCluster"),
    Row("topicList", "many"),
    Row("topicList -c", "live"),
    Row("brokerStatus -b {broker}", "brokerVersionDesc"),
    Row("queryMsgById -i {id_at}", "many"),
    Row("queryMsgByKey -t many -k key1", "{id}"),
    Row("queryMsgByUniqueKey -t many -i {id}", "key1"),
    Row("queryMsgByOffset -t many -b broker-a -i 0 -o 0", "{id_at}"),
    Row("printMsg -t many", "one body"),
    Row("printMsgByQueue -t many -a broker-a -i 0 -p true", "MSGID: {id}"),
    Row("sendMsgStatus -b broker-a -s 10 -c 1", "SendResult"),
    Row("sendMessage -t many -p hello -b broker-a -i 1", "SEND_OK"),
    Row("consumeMessage -t many -b broker-a -i 1 -o 0 -c 1", "hello"),
    Row("brokerConsumeStats -b {broker}", "live"),
    Row("producerConnection -g {producers} -t many", "JAVA"),
    Row("consumerConnection -g live", "many"),
    Row("consumerProgress -g live", "broker-a"),
    Row("consumerProgress", "live"),
    Row("consumerStatus -g live", "Rebalance OK"),
    Row("updateSubGroup -b {broker} -g made -c true", "create subscription group to {broker} success."),
    Row("cloneGroupOffset -s live -d cloned -t many", "clone group offset success"),
    Row("resetOffsetByTime -g live -t many -s 0 -f true", "broker-a"),
    Row("statsAll -t many", "many"),
    Row("allocateMQ -t many -i 1.2.3.4,5.6.7.8", "1.2.3.4"),
    Row("queryCq -q 0 -t many -i 0 -c 1 -b {broker}", "physicOffset"),
    Row("checkMsgSendRT -t many -a 2 -s 10", "Avg RT"),
    Row("clusterRT -a 2 -s 10 -p true -i 1", "DefaultCluster", until="DefaultCluster"),
    Row("updateKvConfig -s ours -k a -v 1", "create or update kv config to namespace success."),
    Row("deleteKvConfig -s ours -k a", "delete kv config from namespace success."),
    Row("updateOrderConf -t many -m put -v broker-a:4", "update orderConf success"),
    Row("updateOrderConf -t many -m get", "broker-a:4"),
    Row("updateOrderConf -t many -m delete", "delete orderConf success"),
    Row("getNamesrvConfig", "listenPort"),
    Row("updateNamesrvConfig -k clusterTest -v false", "update name server config success!"),
    Row("getBrokerConfig -b {broker}", "brokerName"),
    Row("updateBrokerConfig -b {broker} -k fileReservedTime -v 71", "update broker config success"),
    Row("cleanExpiredCQ -b {broker}", "success"),
    Row("cleanUnusedTopic -b {broker}", "success"),
    Row("wipeWritePerm -b broker-a", "wipe write perm of broker[broker-a]"),
    Row("deleteSubGroup -b {broker} -g made", "delete subscription group [made] from broker"),
    Row("deleteTopic -c DefaultCluster -t made", "delete topic [made] from NameServer success."),
)
# This client may close a connection to a name server that another of its threads has just made, whosever
# name server that is. With two addresses of it, the two threads mostly have one each.
FIRST_REQUEST_FAILED, MAX_TRIES = "RemotingSendRequestException: send request to", 30
NOT_RUN = {"startMonitoring"}  # it goes on for ever and writes to a log file: test_mqadmin.py looks at that


@pytest.mark.parametrize("server", [peers.OURS, pytest.param("4.9.7", marks=pytest.mark.long)])
def test_every_command_of_mqadmin_4_5_works(server: str, tmp_path: Path) -> None:
    cluster = peers.start(server, peers.place(tmp_path / "cluster"), CONF)
    try:
        with Console(VERSION, cluster, tmp_path) as console:
            failures = _failures(console, cluster)
    finally:
        cluster.kill()
        shutil.rmtree(cluster.store_dir, ignore_errors=True)
    assert not failures, "\n\n".join(failures)


def _failures(console: Console, cluster: peers.Cluster) -> list[str]:
    facts = _stage(console, cluster)
    commands = set(COMMAND.findall(console.mqadmin().text))
    assert len(commands) > 40
    assert commands - {row.line.split()[0] for row in ROWS} == NOT_RUN
    return [failure for row in ROWS if (failure := _failure(console, cluster, row, facts))]


def _stage(console: Console, cluster: peers.Cluster) -> dict[str, str]:
    """A topic with a message, and a member of a group that has read it."""
    console.act("route", "TBW102")
    made = console.mqadmin(
        *shlex.split(f"updateTopic -b {cluster.broker_addr} -t many -r 4 -w 4 -n {cluster.namesrv}")
    )
    assert made.status == 0, made.text
    console.act("route", "many")
    ids = console.act("send", "many", 0, "tag", "key1", "one body")
    console.act("push", "live", "many", "*", "concurrently", 3)
    console.act("took", "live", 1)
    console.act("committed", cluster.broker_addr, "live", "many", 0, 1)
    console.act("indexed", "many", "key1")
    facts = {"broker": cluster.broker_addr, "producers": "scene"}
    return facts | {"id": ids["id"], "id_at": ids["offsetId"]}


def _failure(console: Console, cluster: peers.Cluster, row: Row, facts: dict[str, str]) -> str:
    words = [*shlex.split(row.line.format(**facts)), "-n"]
    done = console.mqadmin(*words, cluster.namesrv, until=row.until)
    for _ in range(MAX_TRIES):
        if FIRST_REQUEST_FAILED not in done.text:
            break
        again.record(f"mqadmin {VERSION} failed at its first request: {row.line}", done.text[:2000])
        both = f"{cluster.namesrv};localhost:{cluster.place.namesrv_port}"
        done = console.mqadmin(*words, both, until=row.until)
    broken = None if done.endless else EXCEPTION.search(done.text)
    if done.status == 0 and broken is None and row.prints.format(**facts) in done.text:
        return ""
    return f"{row.line}: status {done.status}\n{done.text[:2000]}"
