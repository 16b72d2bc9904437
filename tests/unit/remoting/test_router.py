import asyncio
import logging

import pytest
from tests.kit import virtual
from tests.unit.remoting.kit import RecordingTransport, asked, commands, connected, turn

from turbopump.protocol.command import Command, decode, encode, reply
from turbopump.protocol.errors import BrokenBody, NoPermission, Refused, ServiceNotAvailable, TopicNotFound
from turbopump.protocol.frame import JSON, MAX_FRAME, ROCKETMQ, Frame, cut, pack
from turbopump.protocol.headers.base import I32, Header
from turbopump.remoting.connection import Connection
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import (
    MAX_REMARK,
    REFUSED_LINES,
    Answer,
    AnsweredRequest,
    Request,
    Route,
    Router,
    Routes,
)
from turbopump.testing.loop import run_virtual


class Asked(Header):
    topic: str
    queueId: I32 = 0  # noqa: N815 - wire spelling


class Told(Header):
    offset: int


def answers_to(routes: Routes, *requests: bytes) -> list[Command]:
    """What a router answers in the same pass."""

    async def main() -> list[Command]:
        connection, transport = connected(Router(routes).serve)
        connection.data_received(b"".join(requests))
        return commands(b"".join(transport.writes))

    return run_virtual(main())


def test_a_plain_handler_gets_a_typed_header_and_is_answered_in_the_same_pass() -> None:
    def handler(request: Request[Asked]) -> Answer:
        return Answer(Told(offset=request.header.queueId + len(request.body)))

    [answer] = answers_to(
        {11: Route(Asked, handler)}, asked(11, 5, b"abc", ext={"topic": "T", "queueId": "4"})
    )
    assert (answer.code, answer.opaque, answer.flag, answer.ext) == (0, 5, 1, {"offset": "7"})


def test_a_handler_without_header_and_one_with_ready_fields() -> None:
    [answer] = answers_to({1: Route(None, lambda _: Answer({"k": "v"}, b"body", 10, "remark"))}, asked(1, 9))
    assert (answer.code, answer.ext, answer.body, answer.remark) == (10, {"k": "v"}, b"body", "remark")


def test_an_unknown_code_is_answered_3_with_apaches_words() -> None:
    [answer] = answers_to({}, asked(9999, 1))
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")


def test_a_refusal_becomes_its_code_and_remark() -> None:
    def handler(request: Request[None]) -> Answer:
        raise TopicNotFound("no T here")

    [answer] = answers_to({1: Route(None, handler)}, asked(1, 3))
    assert (answer.code, answer.remark, answer.opaque) == (17, "no T here", 3)


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ])
def test_a_refusal_that_repeats_a_topic_as_long_as_a_frame_is_cut(encoding: int) -> None:
    def handler(request: Request[Asked]) -> Answer:
        raise TopicNotFound(f"no {request.header.topic} here" + "!" * 200)

    topic = "t" * (MAX_FRAME - len(asked(1, 3, ext={"topic": ""}, encoding=encoding)))
    [answer] = answers_to({1: Route(Asked, handler)}, asked(1, 3, ext={"topic": topic}, encoding=encoding))
    assert (answer.code, answer.remark) == (17, "no " + "t" * (MAX_REMARK - 3))


@pytest.mark.parametrize(("length", "kept"), [(MAX_REMARK, MAX_REMARK), (MAX_REMARK + 1, MAX_REMARK)])
def test_remarks_are_whole_up_to_the_bound(length: int, kept: int) -> None:
    routes: Routes = {
        1: Route(None, lambda _: Answer(remark="ä" * length)),
        2: Route(None, lambda request: reply(request.command, 1, "ä" * length)),
    }
    assert [answer.remark for answer in answers_to(routes, asked(1), asked(2))] == ["ä" * kept] * 2


def test_an_answer_longer_than_a_frame_becomes_an_error_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = MAX_FRAME - len(encode(reply(Command(1))))
    bodies = {1: bytes(room), 2: bytes(room + 1)}
    routes: Routes = {code: Route(None, lambda r: Answer(body=bodies[r.command.code])) for code in bodies}
    told: list[AnsweredRequest] = []

    async def main() -> list[Command]:
        connection, transport = connected(Router(routes, observe=told.append).serve)
        connection.data_received(asked(1) + asked(2))
        await turn()
        return commands(b"".join(transport.writes))

    longest, error = run_virtual(main())
    assert (longest.code, len(longest.body)) == (0, room)
    assert (error.code, error.body) == (1, b"")
    assert "longer than a frame" in (error.remark or "")
    assert [answered.answer for answered in told] == [0, 1]
    assert (
        "Reply to request 2 from 10.0.0.7:4711 exceeds the frame limit; sent an error instead" in caplog.text
    )


def test_an_answer_with_fields_longer_than_a_header_becomes_an_error_too() -> None:
    """In JSON a control character takes six bytes, so what came in one frame need not leave in one."""
    fields = {"value": "\x01" * (MAX_FRAME // 2)}
    [answer] = answers_to({1: Route(None, lambda _: Answer(fields))}, asked(1))
    assert (answer.code, answer.ext) == (1, None)
    assert "longer than a frame" in (answer.remark or "")


def test_a_missing_field_is_named() -> None:
    [answer] = answers_to({1: Route(Asked, lambda _: Answer())}, asked(1))
    assert answer.code == 1
    assert "topic" in (answer.remark or "")


def test_an_unexpected_error_is_answered_1_and_its_traceback_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler(request: Request[None]) -> Answer:
        raise KeyError("x")

    answers = answers_to({1: Route(None, handler)}, asked(1, 1), asked(1, 2))
    assert [(answer.code, answer.remark) for answer in answers] == [(1, "KeyError: 'x'")] * 2
    assert caplog.text.count("Traceback") == 1


def test_a_broken_body_is_the_peers_fault_and_has_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: Request[None]) -> Answer:
        raise BrokenBody("no JSON")

    with caplog.at_level(logging.INFO):
        answers = answers_to({1: Route(None, handler)}, asked(1), asked(1))
    assert [(answer.code, answer.remark) for answer in answers] == [(1, "BrokenBody: no JSON")] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "Request 1 of 10.0.0.7:4711 cannot be read: no JSON"
    ]
    assert "Traceback" not in caplog.text


def test_a_refusal_of_an_important_request_is_a_warning_with_address_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(request: Request[None]) -> Answer:
        raise BrokenBody("no JSON")

    routes: Routes = {
        1: Route(None, refuse, warn_as="Heartbeat"),
        2: Route(None, lambda _: Answer(code=16, remark="not now"), warn_as="Registration"),
        3: Route(Asked, lambda _: Answer(), warn_as="Registration"),
        4: Route(None, lambda _: Answer(), warn_as="Registration"),
    }
    with caplog.at_level(logging.INFO):
        answers_to(routes, asked(1), asked(2), asked(3), asked(4))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "Heartbeat of 10.0.0.7:4711 refused with code 1: BrokenBody: no JSON"),
        ("WARNING", "Registration of 10.0.0.7:4711 refused with code 16: not now"),
        ("WARNING", "Registration of 10.0.0.7:4711 refused with code 1: the field topic is missing"),
    ]


def test_many_refusals_are_counted_instead_of_written(caplog: pytest.LogCaptureFixture) -> None:
    routes: Routes = {2: Route(None, lambda _: Answer(code=1, remark="no"), warn_as="Heartbeat")}
    answers_to(routes, *(asked(2) for _ in range(3 * REFUSED_LINES)))
    assert len(caplog.records) == REFUSED_LINES


def test_one_way_requests_are_never_answered_not_even_with_an_error() -> None:
    def handler(request: Request[None]) -> Answer:
        raise KeyError("x")

    routes: Routes = {1: Route(None, lambda _: Answer()), 2: Route(None, handler)}
    assert answers_to(routes, *(asked(code, flag=2) for code in (1, 2, 3))) == []


def test_the_answer_uses_the_encoding_of_the_request() -> None:
    answers = answers_to(
        {1: Route(None, lambda _: Answer())},
        asked(1, 1, encoding=ROCKETMQ),
        asked(2, 2, encoding=ROCKETMQ),
        asked(1, 3),
    )
    assert [answer.encoding for answer in answers] == [1, 1, 0]


@virtual
async def test_a_coroutine_handler_is_answered_when_it_is_done_and_others_overtake_it() -> None:
    go_on = asyncio.Event()

    async def slow(request: Request[None]) -> Answer:
        await go_on.wait()
        return Answer(remark="slow")

    router = Router({1: Route(None, slow), 2: Route(None, lambda _: Answer(remark="quick"))})
    connection, transport = connected(router.serve)
    connection.data_received(asked(1, 1, b"12345") + asked(2, 2))
    assert (connection.in_flight, connection.bytes_in_flight) == (1, 5)
    go_on.set()
    await turn()
    assert [answer.remark for answer in commands(b"".join(transport.writes))] == ["quick", "slow"]
    assert (connection.in_flight, connection.bytes_in_flight) == (0, 0)


@virtual
async def test_a_coroutine_handler_may_fail_too() -> None:
    async def refused(request: Request[None]) -> Answer:
        raise TopicNotFound("no")

    async def broken(request: Request[None]) -> Answer:
        raise ValueError("v")

    connection, transport = connected(Router({1: Route(None, refused), 2: Route(None, broken)}).serve)
    connection.data_received(asked(1, 1) + asked(2, 2))
    await turn()
    assert [answer.code for answer in commands(b"".join(transport.writes))] == [17, 1]
    assert connection.in_flight == 0


@virtual
async def test_a_handler_that_returns_nothing_answers_later() -> None:
    parked: list[Request[None]] = []
    connection, transport = connected(Router({11: Route(None, parked.append)}).serve)
    connection.data_received(asked(11, 8))
    assert transport.writes == []
    parked[0].answer(Answer(body=b"found"))
    [answer] = commands(transport.writes[0])
    assert (answer.opaque, answer.body) == (8, b"found")
    connection.close()
    parked[0].answer(Answer())
    assert len(transport.writes) == 1


@virtual
async def test_requests_beyond_the_bound_wait_for_their_turn() -> None:
    running: list[asyncio.Event] = []

    async def handler(request: Request[None]) -> Answer:
        done = asyncio.Event()
        running.append(done)
        await done.wait()
        return Answer()

    connection, transport = connected(Router({1: Route(None, handler)}).serve, Limits(requests_in_flight=3))
    connection.data_received(b"".join(asked(1, number) for number in range(5)))
    await turn()
    assert len(running) == 3
    assert transport.is_paused
    running[1].set()
    await turn(5)
    assert len(running) == 4
    for done in running:
        done.set()
    await turn(5)
    running[4].set()
    await turn(5)
    assert sorted(answer.opaque for answer in commands(b"".join(transport.writes))) == [0, 1, 2, 3, 4]
    assert not transport.is_paused


@virtual
async def test_answers_go_to_the_caller_and_requests_to_the_handler_on_one_connection() -> None:
    connection, transport = connected(Router({1: Route(None, lambda _: Answer(remark="mine"))}).serve)
    call = asyncio.ensure_future(connection.call(Command(40), 3.0))
    await turn()
    [request] = commands(transport.writes[0])
    connection.data_received(asked(1, request.opaque) + asked(0, request.opaque, flag=1, remark="yours"))
    assert (await call).remark == "yours"
    assert commands(transport.writes[1])[0].remark == "mine"


@virtual
async def test_close_cancels_what_still_runs() -> None:
    cancelled: list[bool] = []

    async def handler(request: Request[None]) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return Answer()

    router = Router({1: Route(None, handler)})
    connection, _ = connected(router.serve)
    connection.data_received(asked(1))
    await turn()
    await router.close()
    assert cancelled == [True]
    assert connection.in_flight == 0


@pytest.mark.parametrize("has_begun", [True, False])
@virtual
async def test_end_lets_handlers_answer_for_a_while_and_refuses_the_others(has_begun: bool) -> None:
    async def handler(request: Request[None]) -> Answer:
        await asyncio.sleep(request.command.opaque)
        return Answer(remark="done")

    router = Router({1: Route(None, handler)})
    connection, transport = connected(router.serve)
    connection.data_received(asked(1, 1) + asked(1, 30))
    if has_begun:
        await turn()
    began = asyncio.get_running_loop().time()
    await router.end(2.0 if has_begun else 0.0, ServiceNotAvailable("the role has ended"))
    assert asyncio.get_running_loop().time() - began <= 2.0
    answers = {answer.opaque: answer for answer in commands(b"".join(transport.writes))}
    assert answers[30].code == 14
    assert answers[30].remark == "the role has ended"
    assert (answers[1].code, answers[1].remark) == ((0, "done") if has_begun else (14, "the role has ended"))
    assert len(answers) == 2
    assert connection.in_flight == 0


@virtual
async def test_too_many_running_handlers_of_all_connections_are_refused_busy() -> None:
    async def handler(request: Request[None]) -> Answer:
        await asyncio.sleep(1)
        return Answer()

    router = Router({1: Route(None, handler)}, max_running=2)
    connection, transport = connected(router.serve)
    connection.data_received(asked(1, 1) + asked(1, 2) + asked(1, 3))
    [answer] = commands(b"".join(transport.writes))
    assert (answer.opaque, answer.code) == (3, 2)
    assert (answer.remark or "").startswith("[OVERLOAD]")
    await router.close()


def test_one_serves_a_single_frame_for_callers_with_a_path_of_their_own() -> None:
    router = Router({1: Route(None, lambda _: Answer())})

    async def main() -> list[Command]:
        def serve(connection: Connection, frames: list[tuple[int, bytes, bytes]]) -> None:
            for frame in frames:
                router.one(connection, frame)

        connection, transport = connected(serve)
        connection.data_received(asked(1, 1) + asked(1, 2))
        assert len(transport.writes) == 1
        return commands(transport.writes[0])

    assert [answer.opaque for answer in run_virtual(main())] == [1, 2]


class Chain:
    """A link that counts what it is asked, and refuses what it is told to."""

    def __init__(self, denies: bool = False, plain: bool = True, error: Exception | None = None) -> None:
        self.error = error if error is not None else NoPermission("not allowed") if denies else None
        self.plain = plain
        self.checked: list[int] = []
        self.asked = 0

    def check(self, command: Command, connection: Connection) -> None:
        self.checked.append(command.code)
        if self.error is not None:
            raise self.error

    def permits_plain_sends(self, connection: Connection) -> bool:
        self.asked += 1
        return self.plain


class Bulk:
    """Takes requests of code 310 together; the front of an event from its bytes, if `compiled`."""

    def __init__(self, router: Router, compiled: bool) -> None:
        self.router = router
        self.shortcut = self.take if compiled else None
        self.taken: list[int] = []
        self.served: list[int] = []

    def take(self, connection: Connection, data: bytes) -> tuple[int, bytes]:
        frames: list[Frame] = []
        cut(data, frames)
        used = 0
        for frame in frames:
            if decode(frame).code != 310:
                break
            self.taken.append(decode(frame).opaque)
            used += len(pack(*frame))
        return used, b""

    def serve(self, connection: Connection, frames: list[Frame]) -> None:
        for frame in frames:
            if decode(frame).code == 310:
                self.served.append(decode(frame).opaque)
            else:
                self.router.one(connection, frame)


def in_bulk(router: Router, compiled: bool) -> tuple[Bulk, Connection, RecordingTransport]:
    bulk = Bulk(router, compiled)
    router.serve_in_bulk(bulk)
    return bulk, *connected(router.serve, shortcut=router.shortcut)


@virtual
async def test_a_request_passes_the_links_in_order_and_then_its_handler() -> None:
    first, second = Chain(), Chain()
    connection, transport = connected(
        Router({1: Route(None, lambda _: Answer(remark="served"))}, before=(first, second)).serve
    )
    connection.data_received(asked(1, 1) + asked(2, 2))
    assert (first.checked, second.checked) == ([1, 2], [1, 2])
    assert [answer.remark for answer in commands(b"".join(transport.writes))] == [
        "served",
        " request type 2 not supported",
    ]


@virtual
async def test_a_request_that_a_link_refuses_reaches_neither_its_handler_nor_the_next_link() -> None:
    handled: list[Request[None]] = []
    observed: list[AnsweredRequest] = []

    async def later(request: Request[None]) -> None:
        handled.append(request)

    routes: Routes = {1: Route(None, handled.append), 2: Route(None, later)}
    after = Chain()
    router = Router(routes, observe=observed.append, before=(Chain(), Chain(denies=True), after))
    connection, transport = connected(router.serve)
    connection.data_received(asked(1, 1) + asked(2, 2) + asked(3, 3))
    await turn()
    answers = commands(b"".join(transport.writes))
    assert [(answer.code, answer.opaque, answer.remark) for answer in answers] == [
        (16, 1, "not allowed"),
        (16, 2, "not allowed"),
        (16, 3, "not allowed"),
    ]
    assert (handled, after.checked, router.running) == ([], [], 0)
    assert [(one.code, one.answer) for one in observed] == [(1, 16), (2, 16), (3, 16)]


def test_a_one_way_request_that_a_link_refuses_is_logged_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        router = Router({1: Route(None, lambda _: None, oneway_as="send")}, before=[Chain(denies=True)])
        connection, transport = connected(router.serve)
        connection.data_received(asked(1, flag=2) + asked(7, flag=2) * 20)
        await asyncio.sleep(10)
        connection.data_received(asked(7, flag=2))
        assert transport.writes == []

    run_virtual(main())
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:2] == [
        "One-way send of 10.0.0.7 is refused: NO_PERMISSION (16): not allowed",
        "One-way request 7 of 10.0.0.7 is refused: NO_PERMISSION (16): not allowed",
    ]
    assert len(lines) == REFUSED_LINES + 1
    assert lines[-1].endswith("(and 11 more since the last such line)")


def test_a_link_that_fails_lets_nothing_through(caplog: pytest.LogCaptureFixture) -> None:
    handled: list[Request[None]] = []

    async def main() -> list[Command]:
        router = Router({1: Route(None, handled.append)}, before=[Chain(error=KeyError("bug"))])
        connection, transport = connected(router.serve)
        connection.data_received(asked(1, 1) + asked(2, 2))
        return commands(b"".join(transport.writes))

    assert [answer.code for answer in run_virtual(main())] == [1, 1]
    assert handled == []
    assert "Request 1 of 10.0.0.7:4711 failed" in caplog.text


@pytest.mark.parametrize("compiled", [False, True])
@virtual
async def test_links_are_asked_about_plain_sends_once_per_read_event(compiled: bool) -> None:
    links = Chain(), Chain()
    router = Router({1: Route(None, lambda _: Answer())}, before=links)
    bulk, connection, transport = in_bulk(router, compiled)
    for event in range(3):
        plain = [asked(310, 10 * event + number) for number in range(5)]
        connection.data_received(b"".join([*plain, asked(1, 9), asked(310, 10 * event + 8)]))
    assert [link.asked for link in links] == [3, 3]
    assert [link.checked for link in links] == [[1, 1, 1], [1, 1, 1]]
    assert len(bulk.taken) == (15 if compiled else 0)
    assert len(bulk.taken) + len(bulk.served) == 18
    assert len(commands(b"".join(transport.writes))) == 3
    connection.data_received(asked(310, 40))
    connection.data_received(asked(1, 41))
    assert [link.asked for link in links] == [5, 5]


@pytest.mark.parametrize("compiled", [False, True])
@virtual
async def test_plain_sends_that_one_link_does_not_permit_are_checked_one_by_one(compiled: bool) -> None:
    permits, denies = Chain(), Chain(denies=True, plain=False)
    router = Router({310: Route(None, lambda _: Answer())}, before=(permits, denies))
    bulk, connection, transport = in_bulk(router, compiled)
    connection.data_received(asked(310, 1) + asked(310, 2) + asked(310, 3))
    assert (bulk.taken, bulk.served) == ([], [])
    assert (permits.asked, denies.asked, denies.checked) == (1, 1, [310, 310, 310])
    assert [answer.code for answer in commands(b"".join(transport.writes))] == [16, 16, 16]


class Inspects(Chain):
    """A link that lets the first `count` sends of a read event pass together, each of the size `size`."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__(denies=True, plain=False)
        self.bytes = count * size
        self.used: list[int] = []

    def permitted_prefix(self, connection: Connection, data: bytes) -> int:
        return min(self.bytes, len(data))

    def served(self, connection: Connection, used: int) -> None:
        self.used.append(used)


@pytest.mark.parametrize("count", [0, 2, 3])
@virtual
async def test_sends_that_an_inspecting_link_has_let_pass_are_served_together(count: int) -> None:
    link = Inspects(count, len(asked(310, 1)))
    router = Router({310: Route(None, lambda _: Answer())}, before=(Chain(), link))
    bulk, connection, transport = in_bulk(router, compiled=True)
    connection.data_received(asked(310, 1) + asked(310, 2) + asked(310, 3))
    assert (bulk.taken, bulk.served) == ([1, 2, 3][:count], [])
    assert link.checked == [310] * (3 - count)
    assert link.used == [link.bytes]
    assert [answer.opaque for answer in commands(b"".join(transport.writes))] == [1, 2, 3][count:]


@virtual
async def test_without_a_shortcut_each_send_is_checked_by_an_inspecting_link() -> None:
    link = Inspects(3, len(asked(310, 1)))
    router = Router({310: Route(None, lambda _: Answer())}, before=[link])
    bulk, connection, _ = in_bulk(router, compiled=False)
    connection.data_received(asked(310, 1) + asked(310, 2))
    assert (bulk.taken, bulk.served, link.checked) == ([], [], [310, 310])


@virtual
async def test_sends_that_another_link_does_not_permit_are_not_inspected() -> None:
    link = Inspects(3, len(asked(310, 1)))
    router = Router({310: Route(None, lambda _: Answer())}, before=(link, Chain(plain=False)))
    bulk, connection, _ = in_bulk(router, compiled=True)
    connection.data_received(asked(310, 1))
    assert (bulk.taken, bulk.served, link.checked) == ([], [], [310])


@pytest.mark.parametrize("compiled", [False, True])
@virtual
async def test_deferred_plain_sends_are_asked_about_again(compiled: bool) -> None:
    """Meanwhile the permission may be gone."""

    link = Chain()
    router = Router({1: Route(None, lambda _: None)}, before=[link])
    bulk, connection, _ = in_bulk(router, compiled)
    together = bulk.serve

    def serve(connection: Connection, frames: list[Frame]) -> None:
        if connection.saturated:
            connection.defer(frames)
        else:
            together(connection, frames)

    bulk.serve = serve  # type: ignore[method-assign]
    router.serve_in_bulk(bulk)
    connection, transport = connected(router.serve, Limits(requests_in_flight=1), shortcut=router.shortcut)
    connection.begin(1)
    connection.data_received(asked(310, 1))
    assert (link.asked, connection.waiting) == (1, 1)
    link.plain, link.error = False, NoPermission("not any more")
    connection.end(1)
    await turn()
    assert (link.asked, link.checked, bulk.served) == (2, [310], [])
    assert [answer.code for answer in commands(b"".join(transport.writes))] == [16]


@pytest.mark.parametrize("compiled", [False, True])
@virtual
async def test_without_links_a_bulk_handler_is_called_by_the_connection_itself(compiled: bool) -> None:
    router = Router({})
    bulk = Bulk(router, compiled)
    router.serve_in_bulk(bulk)
    assert router.serve == bulk.serve
    assert router.shortcut == bulk.shortcut


@virtual
async def test_a_link_that_fails_when_asked_about_plain_sends_ends_the_connection() -> None:
    class Fails(Chain):
        def permits_plain_sends(self, connection: Connection) -> bool:
            raise KeyError("bug")

    for compiled in (False, True):
        bulk, connection, transport = in_bulk(Router({}, before=[Fails()]), compiled)
        connection.data_received(asked(310, 1))
        assert transport.closed
        assert (bulk.taken, bulk.served) == ([], [])


def test_a_refusal_carries_its_own_fields_and_those_of_its_route() -> None:
    def refused(_: Request[None]) -> Answer:
        raise NoPermission("no", {"own": "1", "both": "own"})

    async def later(_: Request[None]) -> Answer:
        raise Refused(17, "no topic", {"own": "2"})

    def bare(_: Request[None]) -> Answer:
        raise TopicNotFound("none")

    def broken(_: Request[None]) -> Answer:
        raise BrokenBody("junk")

    def fields() -> dict[str, str]:
        return {"region": "r", "both": "route"}

    async def main() -> list[Command]:
        routes: Routes = {
            1: Route(None, refused),
            2: Route(None, later),
            3: Route(None, refused, refused_fields=fields),
            4: Route(None, later, refused_fields=fields),
            5: Route(None, bare, refused_fields=fields),
            6: Route(None, bare),
            7: Route(None, broken, refused_fields=fields),
        }
        connection, transport = connected(Router(routes).serve)
        for code in routes:
            connection.data_received(asked(code, code))
        await turn()
        return sorted(commands(b"".join(transport.writes)), key=lambda answer: answer.opaque)

    assert [(answer.code, answer.ext or None) for answer in run_virtual(main())] == [
        (16, {"own": "1", "both": "own"}),
        (17, {"own": "2"}),
        (16, {"region": "r", "both": "own", "own": "1"}),
        (17, {"region": "r", "both": "route", "own": "2"}),
        (17, {"region": "r", "both": "route"}),
        (17, None),
        (1, None),
    ]


def test_a_refusal_of_a_link_carries_the_fields_of_the_route() -> None:
    async def main() -> list[Command]:
        route = Route(None, lambda _: None, refused_fields=lambda: {"region": "r"})
        connection, transport = connected(Router({1: route}, before=[Chain(denies=True)]).serve)
        connection.data_received(asked(1, 1))
        return commands(b"".join(transport.writes))

    assert [(answer.code, answer.ext) for answer in run_virtual(main())] == [(16, {"region": "r"})]


def test_a_route_that_asks_for_it_has_its_refused_one_way_requests_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refused(_: Request[None]) -> Answer:
        raise TopicNotFound("No topic T")

    async def later(_: Request[None]) -> Answer:
        raise TopicNotFound("No topic L")

    routes: Routes = {
        1: Route(None, refused, oneway_as="send"),
        2: Route(None, later, oneway_as="reply"),
        3: Route(None, refused),
    }

    async def main() -> None:
        connection, transport = connected(Router(routes).serve)
        for code in routes:
            connection.data_received(asked(code, flag=2))
        await turn()
        assert transport.writes == []

    run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == [
        "One-way send of 10.0.0.7 is refused: TOPIC_NOT_EXIST (17): No topic T",
        "One-way reply of 10.0.0.7 is refused: TOPIC_NOT_EXIST (17): No topic L",
    ]
