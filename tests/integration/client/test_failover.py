"""Two brokers as processes of their own, one of them killed with signal 9 while clients send: no caller of a
sync or an awaited send hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbopump import Message, Producer, SendStatus, aio
from turbopump.runtime.ports import reserved_port

PROGRAM = str(Path(sys.executable).with_name("turbopump"))
TOPIC = "TBW102"  # every broker has it: nothing to create, nothing to wait for
SENDS = 300
KILLED_AT = 100
PATIENCE = {"send_msg_timeout": 20.0}  # on a busy machine


@contextlib.contextmanager
def process(ready: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Runs until the end of the block, or until it is killed in it."""
    running = subprocess.Popen(
        [PROGRAM, *words, "--log-dir", "-"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert running.stdout is not None
        printed = []
        for line in running.stdout:
            printed.append(line)
            if ready in line:
                break
        else:
            pytest.fail("".join(printed))
        yield running
    finally:
        running.kill()
        running.wait()
        assert running.stdout is not None
        running.stdout.close()


@contextlib.contextmanager
def two_brokers(home: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The name server's address, and the broker that may be killed."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(reserved_port("127.0.0.1", steps)) for steps in ((), (-2, 1), (-2, 1))]
        name_server = f"127.0.0.1:{ports[0]}"
        settings = home / "b.conf"
        settings.write_text(
            f"brokerName=broker-b\nbrokerIP1=127.0.0.1\nlistenPort={ports[2]}\n"
            f"storePathRootDir={home / 'b'}\n"
        )
        up = (
            "up",
            "--data",
            str(home / "a"),
            "--namesrv-port",
            str(ports[0]),
            "--broker-port",
            str(ports[1]),
        )
        with (
            process("is ready", *up),
            process("Registered", "broker", "-n", name_server, "-c", str(settings)) as other,
        ):
            yield name_server, other


def test_no_sync_caller_hears_of_a_broker_that_is_killed(tmp_path: Path) -> None:
    with (
        two_brokers(tmp_path) as (name_server, victim),
        Producer("makers", name_servers=name_server, **PATIENCE) as producer,
    ):
        results = []
        for number in range(SENDS):
            if number == KILLED_AT:
                victim.send_signal(signal.SIGKILL)
            results.append(producer.send(Message(TOPIC, b"%d" % number)))
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert {result.queue.broker for result in results[:KILLED_AT]} == {"broker-a", "broker-b"}
    assert {result.queue.broker for result in results[-20:]} == {"broker-a"}


def test_nor_does_one_of_many_awaited_sends(tmp_path: Path) -> None:
    async def main(name_server: str, victim: subprocess.Popen[str]) -> list[aio.SendResult]:
        async with aio.Producer("makers", name_servers=name_server, **PATIENCE) as producer:
            sent: list[aio.SendResult] = []

            async def sender() -> None:
                for _ in range(SENDS // 10):
                    sent.append(await producer.send(Message(TOPIC, b"x")))
                    if len(sent) == KILLED_AT:
                        victim.send_signal(signal.SIGKILL)

            await asyncio.gather(*(sender() for _ in range(32)))
            return sent

    with two_brokers(tmp_path) as (name_server, victim):
        results = asyncio.run(main(name_server, victim))
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert {result.queue.broker for result in results[:KILLED_AT]} == {"broker-a", "broker-b"}
