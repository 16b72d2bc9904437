"""Builds the part for sends: general sends, plain sends in bulk, and replies to request messages."""

import os

from turbopump.broker.part import Context, Part
from turbopump.broker.produce.plain_sends import PlainSendHandler
from turbopump.broker.produce.receipt import Receipts
from turbopump.broker.produce.replies import ReplyHandler
from turbopump.broker.produce.send import SendHandler
from turbopump.protocol.ids import UniqueIds
from turbopump.remoting.router import Router


async def build(context: Context) -> Part:
    """Builds the send handlers, after all parts with message kinds, so that sends know all of these."""
    store, tables, writer, targets = context.store, context.tables, context.writer, context.targets
    rules, clock = targets.rules, context.clock
    index_of = (lambda offset: -1) if context.member is None else context.member.index_of
    receipts = Receipts(store.log.store_host, rules.region, rules.trace_on, index_of)
    ids = UniqueIds(rules.broker_ip, os.getpid(), clock.now_ms, context.chance.getrandbits(32))
    sends = SendHandler(
        store,
        targets,
        tables.groups,
        receipts,
        context.kinds,
        writer,
        context.chance,
        ids.next,
        in_order=lambda group: tables.locks.holds_any(group, clock.monotonic()),
    )
    replies = ReplyHandler(
        tables.members,
        sends,
        receipts,
        writer,
        clock,
        stores=lambda: context.config().sending.store_replies,
        may_receive=context.may_receive,
    )

    def plain_sends(router: Router) -> PlainSendHandler:
        handler = PlainSendHandler(store, targets, context.kinds, writer, receipts, router)
        context.topic_listeners.append(lambda topics: handler.topics_changed([one.name for one in topics]))
        return handler

    return Part(routes={**sends.routes(), **replies.routes()}, bulk=plain_sends)
