"""`turbopump auth explain`: asks running servers whether a user may do something, and why."""

import argparse
import asyncio

from msgspec.structs import asdict

from turbopump.admin.render import json_text
from turbopump.cli import connect
from turbopump.cli.arguments import add_action
from turbopump.cli.failures import CommandFailure
from turbopump.client.admin import Admin
from turbopump.protocol.bodies import AccessExplanation
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused

DENIED = 3
"""Exit status when one of the servers that were asked denies it."""

Answers = dict[str, AccessExplanation]
"""By the address of the server."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    explained = add_action(
        actions,
        "explain",
        "say whether a user may do something, and which entry decides: exit status 0 allowed, 3 denied",
        "turbopump auth explain billing Sub Topic:orders\n"
        "turbopump auth explain billing Sub Group:billing --source 10.0.0.7 --server 10.0.0.1:10911",
    )
    explained.add_argument("user", metavar="USER", help="user of 5.x, or access key of an account of 4.x")
    explained.add_argument("what", metavar="ACTION", help="Pub, Sub, Create, Update, Delete, Get or List")
    explained.add_argument(
        "resource", metavar="RESOURCE", help="Topic:NAME, Group:NAME, Cluster:NAME or Namespace:NAME"
    )
    explained.add_argument(
        "--source", metavar="ADDRESS", help="IP address of the user (default: that of this machine)"
    )
    explained.add_argument(
        "--server",
        metavar="ADDR",
        help="broker or name server to ask, host:port (default: every master that is registered)",
    )
    explained.add_argument("--json", action="store_true", help="print one JSON document")
    connect.add_argument(explained)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    if options.server:
        async with Admin([]) as admin:
            return await explain(options, admin, [connect.checked(options.server)])
    async with connect.administration(options.namesrv) as admin:
        brokers = (await admin.clusters.layout()).brokers
        masters = [broker.address for broker in brokers if broker.id == 0]
        if not masters:
            raise CommandFailure("no master is registered at the name servers: name one, with --server")
        return await explain(options, admin, masters)


async def explain(options: argparse.Namespace, admin: Admin, servers: list[str]) -> int:
    """Asks servers, each of which has users of its own, and prints what they say; returns the exit status."""
    answers = {server: await _ask(options, admin, server) for server in servers}
    is_allowed = all(answer.allowed for answer in answers.values())
    if options.json:
        servers_json = [{"server": server} | asdict(answer) for server, answer in answers.items()]
        print(json_text({"allowed": is_allowed, "servers": servers_json}))
    else:
        print("\n".join(_lines(answers)))
    return 0 if is_allowed else DENIED


async def _ask(options: argparse.Namespace, admin: Admin, server: str) -> AccessExplanation:
    try:
        return await admin.acls.explain(server, options.user, options.what, options.resource, options.source)
    except OSError as error:
        raise CommandFailure(f"{server} does not answer: {error}") from None
    except Refused as refused:
        if refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            why = "it has no access control, so everything is allowed, or it is not Turbopump"
            raise CommandFailure(f"{server} cannot explain: {why}") from None
        raise CommandFailure(f"{server} refuses: {refused.remark}") from None


def _lines(answers: Answers) -> list[str]:
    lines = []
    for server, answer in answers.items():
        lines.append(f"{server}: {'allowed' if answer.allowed else 'denied'}. {answer.why}")
        lines += [f"  {one}" for one in answer.lookedAt]
        lines += [f"  {answer.note}"] if answer.note else []
    return lines
