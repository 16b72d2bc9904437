"""A broker with the accounts of 4.x: its files, and who is in them."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from tests.unit.broker.desk import CONFIG, letters, running
from tests.unit.guard.kit import GuardedDesk

from turbopump.auth.signature import Credentials
from turbopump.guard.config import AccessConfig
from turbopump.protocol.codes import RequestCode as Code
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock

NO_PERMISSION, UPDATE_FAILED, DELETE_FAILED, WHITE_FAILED = 16, 209, 210, 211
MAIN, TEAM = "/conf/plain_acl.yml", "/conf/acl/deep/team.yml"
ADMIN = Credentials("administrator", "admin-secret-word")
USER = Credentials("plainuser", "plain-secret-word")
TEAMUSER = Credentials("teamuser", "team-secret-word")
SECRETS = tuple(one.secret_key for one in (ADMIN, USER, TEAMUSER))

MAIN_TEXT = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: administrator
  secretKey: admin-secret-word
  admin: true
- accessKey: plainuser
  secretKey: plain-secret-word
  defaultGroupPerm: SUB
  topicPerms: [T=PUB, R=SUB]
"""
TEAM_TEXT = """
accounts:
- accessKey: teamuser
  secretKey: team-secret-word
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
ACCOUNTS = replace(CONFIG, access=AccessConfig(accounts=True, accounts_dir="/conf"))


def a_disk(main: str = MAIN_TEXT, team: str = TEAM_TEXT) -> SimulatedDisk:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    disk.write(MAIN, main.encode(), private=True)
    disk.write(TEAM, team.encode(), private=True)
    disk.write("/conf/acl/tools.yml", b"accessKey: x\nsecretKey: y\n")
    return disk


@contextlib.asynccontextmanager
async def accounts_broker(disk: SimulatedDisk | None = None) -> AsyncIterator[GuardedDesk]:
    async with running(ACCOUNTS, disk or a_disk()) as desk:
        yield GuardedDesk(desk)


async def sends(desk: GuardedDesk, who: Credentials | None, topic: str = "T") -> int:
    return (await desk.ask(who, Code.SEND_MESSAGE_V2, letters(topic), b"x")).code
