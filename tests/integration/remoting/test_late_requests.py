"""A real socket: what lay in the system while the loop was held up is old, and known to be."""

import asyncio
import time

from turbopump.protocol.command import Command, decode, encode, reply
from turbopump.protocol.frame import Frame
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.late_requests import LateRequests
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

HOLD, QUICK = 1, 2
HELD_UP_S = 1.0
LONG_S = HELD_UP_S / 2  # a busy machine adds a little to everything, but not this much
ASK_WITHIN_S = 30.0


def test_a_request_that_lay_there_is_late_and_the_next_is_not() -> None:
    late: list[float] = []

    def refuse(connection: Connection, frames: list[Frame], waited_s: float) -> list[Frame]:
        late.append(waited_s)
        for frame in frames:
            connection.write(encode(reply(decode(frame), 2)))
        return []

    def hold(request: Request[None]) -> Answer:
        time.sleep(HELD_UP_S)
        return Answer()

    async def main() -> None:
        network, clock = SystemNetwork(), SystemClock()
        router = Router({HOLD: Route(None, hold), QUICK: Route(None, lambda request: Answer())})
        server = Server(router, network, clock)
        server.late_requests = LateRequests(refuse, lambda: LONG_S)
        address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        clients = [Client(network, clock) for _ in range(3)]
        for client in clients:
            await client.call(address, Command(QUICK), ASK_WITHIN_S)
        codes = [HOLD, QUICK, QUICK]
        calls = [
            client.call(address, Command(code), ASK_WITHIN_S)
            for client, code in zip(clients, codes, strict=True)
        ]
        answers = await asyncio.gather(*calls)
        assert [answer.code for answer in answers] == [0, 2, 2]
        assert all(LONG_S <= waited_s <= 2 * HELD_UP_S for waited_s in late)
        assert (await clients[1].call(address, Command(QUICK), ASK_WITHIN_S)).code == 0
        for client in clients:
            await client.close()
        await server.stop()

    asyncio.run(main())
