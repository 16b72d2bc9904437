"""Pairs with access control, and tools that ask them with users."""

import json

from tests.unit.guard.kit import ALICE, ROOT, SETTINGS
from tests.unit.replication.kit import Node, Pair

from turbopump.auth.signature import Credentials
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command

CONF = "".join(f"{key}={text}\n" for key, text in SETTINGS.items())
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


async def ask(
    world: Pair, node: Node, who: Credentials, code: int, ext: dict[str, str] | None = None, body: bytes = b""
) -> Command:
    return await world.tool.call(node.address, Command(code, ext=who.signed(ext, body), body=body), 30.0)


async def create_alice(world: Pair, node: Node) -> Command:
    user = json.dumps({"password": ALICE.secret_key}).encode()
    return await ask(world, node, ROOT, Code.AUTH_CREATE_USER, {"username": ALICE.access_key}, user)
