"""Every command of Apache's mqadmin about users, policies and accounts, with good and bad arguments.

They run at one guarded cluster, whose administrator `tools.yml` names; users are copied to a second broker.
The same commands run at Apache's servers and at ours, so that what they print can be compared.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import access_control, guarded, peers
from .access_control import V4, V5
from .clients import Answers
from .console import Console
from .mqadmin import ApachesMqadmin
from .mqadmin_session import Session
from .printed import counted
from .replica_pair import eventually

OTHER = "broker-b"
OBJECT = re.compile(r"(?<=PlainAccessConfig)@.*")  # the identity of a Java object
ADMINISTRATOR = (access_control.SUPER["access_key"], access_control.SUPER["secret_key"])


def of_apache(kind: str, version: str, home: Path) -> Answers:
    """Runs the commands at guarded servers of Apache's."""
    cluster = access_control.start(kind, home / "cluster")
    return _of_both(kind, version, cluster, None, home)


def of_ours(kind: str, version: str, home: Path, pem: Path | None) -> Answers:
    """Runs them at ours, with the users of 5.x or the accounts of 4.x."""
    accounts = access_control.PLAIN_ACL if kind == V4 else ""
    cluster = guarded.start(home / "cluster", pem, accounts=accounts)
    return _of_both(kind, version, cluster, cluster, home)


def _of_both(
    kind: str, version: str, cluster: peers.Cluster, ours: guarded.GuardedCluster | None, home: Path
) -> Answers:
    brokers = [cluster]
    try:
        if kind == V5 and ours is not None:
            brokers.append(guarded.join(ours, home / "other", OTHER))
        elif kind == V5:
            brokers.append(peers.join(cluster, home / "other", OTHER, access_control.CONF[V5]))
        who = guarded.ROOT if ours is not None and kind == V5 else ADMINISTRATOR
        work = home / "work"
        (work / "conf").mkdir(parents=True)
        (work / "conf" / "tools.yml").write_text(f"accessKey: {who[0]}\nsecretKey: {who[1]}\n")
        environment = {} if ours is None else ours.environment(who)
        if ours is None:
            environment["JAVA_TOOL_OPTIONS"] = f"-Dinterop.accessKey={who[0]} -Dinterop.secretKey={who[1]}"
        with Console(version, cluster, work, environment) as console:
            at = Session(cluster, console, ApachesMqadmin(console, version), work)
            at.facts["other"] = brokers[-1].broker_addr
            with at.section("access"):
                users_and_policies(at) if kind == V5 else accounts(at)
            return at.answers
    finally:
        for broker in reversed(brokers):
            broker.discard()


def users_and_policies(at: Session) -> None:
    at("createUser -b {broker} -u clerk -p secret-of-clerk -t Normal")
    at("createUser -b {broker} -u clerk -p secret-of-clerk")
    at("createUser -b {broker} -u boss -p secret-of-boss -t Super")
    at("createUser -b {broker} -u empty")
    at("getUser -b {broker} -u clerk")
    at("getUser -b {broker} -u nobody")
    at("getUser -c DefaultCluster -u boss")
    at("listUser -b {broker} -f cler")
    at("updateUser -b {broker} -u clerk -p other-secret")
    at("updateUser -b {broker} -u clerk -s disable")
    at("getUser -b {broker} -u clerk")
    at("updateUser -b {broker} -u clerk -s enable")
    at("updateUser -b {broker} -u clerk -t Super")
    at("updateUser -b {broker} -u clerk -t Normal")
    at("updateUser -b {broker} -u nobody -p other-secret")
    at("createAcl -b {broker} -s User:clerk -r Topic:a*,Group:readers -a Pub,Sub -i 10.0.0.0/8 -d Allow")
    at("createAcl -b {broker} -s User:nobody -r Topic:a -a Pub -d Allow")
    at("createAcl -b {broker} -s User:clerk -r Topic:b -a Any -d Allow")
    at("createAcl -b {broker} -s User:clerk -r Topic:b -a Pub -d Perhaps")
    at("getAcl -b {broker} -s User:clerk")
    at("listAcl -b {broker} -s cler -r Topic")
    at("updateAcl -b {broker} -s User:clerk -r Topic:a* -a Sub -d Deny")
    at("getAcl -b {broker} -s User:clerk")
    at("getAcl -b {broker} -s User:nobody")
    at("updateAcl -b {broker} -s User:nobody -r Topic:a -a Sub -d Deny")
    at("copyUser -f {broker} -t {other} -u boss")
    at("createUser -b {other} -u clerk -p third-secret -t Super")
    at("copyUser -f {broker} -t {other} -u clerk")
    at("listUser -b {other} -f cler")
    at("copyAcl -f {broker} -t {other} -s User:clerk")
    at("getAcl -b {other} -s User:clerk")
    at("deleteAcl -b {broker} -s User:clerk -r Topic:a*")
    at("getAcl -b {broker} -s User:clerk")
    at("deleteAcl -b {broker} -s User:clerk -r Topic:unknown")
    at("deleteAcl -b {broker} -s User:clerk")
    at("getAcl -b {broker} -s User:clerk")
    at("deleteAcl -b {broker} -s User:nobody")
    at("deleteUser -b {broker} -u clerk")
    at("getUser -b {broker} -u clerk")
    at("deleteUser -b {broker} -u clerk")
    at("deleteUser -c DefaultCluster -u boss", counted)
    at("listAcl -b {other} -s cler")


def accounts(at: Session) -> None:
    def objects(lines: list[str]) -> list[str]:
        return [OBJECT.sub("@<object>", line) for line in lines]

    at(
        "updateAclConfig -b {broker} -a clerk01 -s clerk-secret -t a=PUB,b=SUB -g readers=SUB -i DENY",
        objects,
    )
    at("updateAclConfig -b {broker} -a clerk02 -s clerk-secret -w 10.10.10.10 -m false", objects)
    at("updateAclConfig -b {broker} -a clerk03 -s short", objects)
    at("updateAclConfig -b {broker} -a clerk04 -s clerk-secret -t a=PERHAPS", objects)
    at("updateAclConfig -c DefaultCluster -a clerk05 -s clerk-secret -t c=PUB", objects)
    at("clusterAclConfigVersion -b {broker}", objects)
    at("clusterAclConfigVersion -c DefaultCluster", objects)
    at("updateGlobalWhiteAddr -b {broker} -g 10.10.10.10,192.168.0.*")
    config(at, "10.10.10.10")
    at("deleteAclConfig -b {broker} -a clerk01")
    at("deleteAclConfig -b {broker} -a nobody01")
    at("deleteAclConfig -c DefaultCluster -a clerk02")
    config(at, "clerk05")


def config(at: Session, words: str) -> None:
    """What the file says now, once Apache's broker, which looks at it every five seconds, has read it."""
    if at.tool.mqadmin("help", "getAclConfig").text.startswith("The sub command"):
        return  # only 4.9.7 and earlier have it
    line = ("getAclConfig", "-b", at.cluster.broker_addr, "-n", at.cluster.namesrv)
    eventually(lambda: words in at.tool.mqadmin(*line).text, f"getAclConfig does not print {words}")
    at("getAclConfig -b {broker}")
