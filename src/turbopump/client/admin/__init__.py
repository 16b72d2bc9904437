"""Administration of a cluster, Apache's or ours: `Admin`, with one part per subject.

    async with Admin("127.0.0.1:9876") as admin:
        await admin.topics.create("orders", queues=8)
        print(await admin.topics.names())

Every method raises `Refused` (or its class for the code) when a server refuses, and `Unreachable`, an
`OSError`, when it does not answer. What is never here: printing, and the rules of a command line.
"""

from turbopump.client.admin.admin import Admin
from turbopump.client.admin.calls import NotFound, ServerUnreachable
from turbopump.client.admin.dead_letters import Target, Window
from turbopump.client.admin.offsets import END
from turbopump.client.errors import Unreachable
from turbopump.protocol.bodies import PlainAccessConfig, SubscriptionGroupConfig, TopicConfig

__all__ = [
    "END",
    "Admin",
    "NotFound",
    "PlainAccessConfig",
    "ServerUnreachable",
    "SubscriptionGroupConfig",
    "Target",
    "TopicConfig",
    "Unreachable",
    "Window",
]
