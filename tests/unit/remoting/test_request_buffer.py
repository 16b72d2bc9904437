import asyncio

from tests.kit import virtual
from tests.unit.remoting.kit import turn

from turbopump.remoting.calls import Calls
from turbopump.remoting.request_buffer import MAX_BYTES, RequestBuffer


def buffer() -> tuple[RequestBuffer, Calls, list[bytes]]:
    loop, written = asyncio.get_running_loop(), list[bytes]()
    calls = Calls(loop, lambda code, timeout_s, reads: TimeoutError())
    return RequestBuffer(written.append, calls, loop), calls, written


@virtual
async def test_the_only_request_under_way_is_written_at_once() -> None:
    requests, calls, written = buffer()
    calls.begin(1, 10, 3.0, 0)
    requests.add(b"a")
    assert written == [b"a"]
    await turn()
    assert written == [b"a"]


@virtual
async def test_requests_beside_others_are_written_together_at_the_end_of_the_turn() -> None:
    requests, calls, written = buffer()
    for opaque in (1, 2, 3):
        calls.begin(opaque, 10, 3.0, 0)
        requests.add(b"%d" % opaque)
    assert written == [b"1"]
    await turn()
    assert written == [b"1", b"23"]
    requests.add(b"4")
    await turn()
    assert written == [b"1", b"23", b"4"]


@virtual
async def test_the_first_one_way_request_is_written_at_once_and_those_after_it_together() -> None:
    requests, _, written = buffer()
    for data in (b"a", b"b", b"c"):
        requests.add(data)
    assert written == [b"a"]
    await turn()
    assert written == [b"a", b"bc"]


@virtual
async def test_more_bytes_than_the_bound_are_written_before_the_turn_ends() -> None:
    for extra in (0, 1):
        requests, calls, written = buffer()
        for opaque in (1, 2):
            calls.begin(opaque, 10, 3.0, 0)
        requests.add(bytes(MAX_BYTES))
        requests.add(bytes(extra))
        assert [len(data) for data in written] == ([MAX_BYTES + 1] if extra else [])
        await turn()
        assert sum(map(len, written)) == MAX_BYTES + extra


@virtual
async def test_what_was_gathered_is_flushed_or_dropped_once() -> None:
    requests, calls, written = buffer()
    for opaque in (1, 2):
        calls.begin(opaque, 10, 3.0, 0)
    requests.add(b"kept")
    requests.flush()
    assert written == [b"kept"]
    requests.add(b"lost")
    requests.drop()
    await turn()
    requests.flush()
    assert written == [b"kept"]
