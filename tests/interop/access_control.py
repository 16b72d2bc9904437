"""Apache's servers with access control: an administrator, and a user that may use one of two topics."""

from __future__ import annotations

from pathlib import Path

from turbopump import Admin
from turbopump.client.options import ClientOptions

from . import peers

V4, V5 = "4.9.7", "5.5.0"
TOPIC, OTHER, READERS, PULLERS = "SignedOrders", "SignedOther", "signed-readers", "signed-pullers"
SUPER: ClientOptions = {"access_key": "operator1", "secret_key": "super-secret"}
USER: ClientOptions = {"access_key": "writer1", "secret_key": "writer-secret"}

PLAIN_ACL = """\
accounts:
- accessKey: operator1
  secretKey: super-secret
  admin: true
- accessKey: writer1
  secretKey: writer-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - SignedOrders=PUB|SUB
  groupPerms:
  - signed-readers=SUB
  - signed-pullers=SUB
"""
AUTHENTICATION = "org.apache.rocketmq.auth.authentication.provider"
AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider"
CONF = {
    V4: {"aclEnable": "true"},
    V5: {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationMetadataProvider": f"{AUTHENTICATION}.LocalAuthenticationMetadataProvider",
        "authorizationMetadataProvider": f"{AUTHORIZATION}.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": '{"username":"operator1","password":"super-secret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner1","secretKey":"inner-secret"}',
    },
}


def start(kind: str, home: Path) -> peers.Cluster:
    """Returns a started cluster of Apache's with both topics and the user."""
    where = peers.place(home)
    (where.home / "conf").mkdir()
    (where.home / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    cluster = peers.start(kind, where, CONF[kind])
    with Admin(cluster.namesrv, **SUPER) as admin:
        for topic in (TOPIC, OTHER):
            admin.topics.create(topic, queues=2)
        if kind == V5:
            at = cluster.broker_addr
            admin.users.create(at, USER["access_key"], USER["secret_key"])
            resources = [f"Topic:{TOPIC}", f"Group:{READERS}", f"Group:{PULLERS}"]
            admin.acls.create(at, "User:writer1", resources, ["Pub", "Sub"], "Allow")
    return cluster
