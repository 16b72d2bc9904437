"""Blocking clients through the life of a process: signals, forks, and an end without goodbye."""

import contextlib
import re
import signal
import time

from tests.integration.client.programs import program

from turbopump import Message, errors
from turbopump.testing import Cluster

CONSUMES = """
consumer = Consumer({group!r}, consume_from_where=FIRST, persist_consumer_offset_interval=300)

@consumer.on({topic!r})
def handle(message):
    say("begun", message.text)
    time.sleep({work_s})
    say("done", message.text)
"""


def consuming(topic: str, group: str, work_s: float = 0.0) -> str:
    return CONSUMES.format(topic=topic, group=group, work_s=work_s)


def stored(cluster: Cluster, *bodies: bytes) -> str:
    """A new topic with these messages."""
    topic = cluster.create_topic()
    with cluster.producer() as producer:
        for body in bodies:
            producer.send(Message(topic, body))
    return topic


def test_sigterm_lets_a_handler_finish_and_commits(cluster: Cluster) -> None:
    topic = stored(cluster, b"A-1")
    with program(
        consuming(topic, "terminated", 1.0) + "consumer.run()\nsay('over')", cluster.name_servers
    ) as one:
        assert one.line() == "begun A-1"
        one.signal(signal.SIGTERM)
        assert one.end() == (0, "done A-1\nover\n")
    cluster.wait_until_consumed("terminated", topic, 1)


def test_ctrl_c_does_the_same(cluster: Cluster) -> None:
    topic = stored(cluster, b"A-1")
    with program(
        consuming(topic, "interrupted", 0.5) + "consumer.run()\nsay('over')", cluster.name_servers
    ) as one:
        assert one.line() == "begun A-1"
        one.signal(signal.SIGINT)
        assert one.end() == (0, "done A-1\nover\n")
    cluster.wait_until_consumed("interrupted", topic, 1)


def test_a_second_ctrl_c_does_not_wait(cluster: Cluster) -> None:
    topic = stored(cluster, b"A-1")
    with program(consuming(topic, "impatient", 3600) + "consumer.run()", cluster.name_servers) as one:
        assert one.line() == "begun A-1"
        one.signal(signal.SIGINT)
        time.sleep(0.5)
        begun = time.monotonic()
        one.signal(signal.SIGINT)
        code, told = one.end()
        assert code != 0
        assert "KeyboardInterrupt" in told
        assert time.monotonic() - begun < 20


def test_run_returns_when_a_handler_closes_the_consumer(cluster: Cluster) -> None:
    topic = stored(cluster, b"A-1")
    text = f"""
    consumer = Consumer("closing", consume_from_where=FIRST)

    @consumer.on({topic!r})
    def handle(message):
        threading.Thread(target=consumer.close).start()

    consumer.run()
    say("over")
    """
    with program(text, cluster.name_servers) as one:
        assert one.end() == (0, "over\n")
    cluster.wait_until_consumed("closing", topic, 1)


def test_a_program_that_just_ends_commits_and_sends_what_was_under_way(cluster: Cluster) -> None:
    topic, target = stored(cluster, b"A-1"), cluster.create_topic()
    text = consuming(topic, "just-ends", 0.5) + "\n".join(
        (
            "producer = Producer('enders')",
            "producer.start(); consumer.start()",
            f"futures = [producer.send_async(Message({target!r}, b'%d' % n)) for n in range(500)]",
            "time.sleep(1.2)",
        )
    )
    with program(text, cluster.name_servers) as one:
        assert one.end() == (0, "begun A-1\ndone A-1\n")
    assert len(cluster.messages(target)) == 500
    cluster.wait_until_consumed("just-ends", topic, 1)


def test_ctrl_c_ends_a_call_that_waits(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    text = f"""
    with PullConsumer("nobody", topics=[{topic!r}]) as consumer:
        say("waiting")
        try:
            consumer.poll(300)
        except KeyboardInterrupt:
            say("interrupted")
    say("closed")
    """
    with program(text, cluster.name_servers) as one:
        assert one.line() == "waiting"
        time.sleep(0.3)
        one.signal(signal.SIGINT)
        assert one.end() == (0, "interrupted\nclosed\n")


def test_a_producer_started_before_a_fork_sends_in_parent_and_child_under_its_own_name(
    cluster: Cluster,
) -> None:
    topic = cluster.create_topic()
    text = f"""
    producer = Producer("forked")
    with producer:
        say(producer.send(Message({topic!r}, b"before")).message_id)
        child = os.fork()
        if child == 0:
            for _ in range(3):
                say(producer.send(Message({topic!r}, b"child")).message_id)
            producer.close()
            os._exit(0)
        for _ in range(3):
            say(producer.send(Message({topic!r}, b"parent")).message_id)
        say("child", end_of(child))
        say(producer.send(Message({topic!r}, b"after")).message_id)
    """
    with program(text, cluster.name_servers) as one:
        code, told = one.end()
    assert code == 0, told
    ids = re.findall(r"^[0-9A-F]{32}$", told, re.MULTILINE)
    assert len(set(ids)) == len(ids) == 8, told
    assert "child 0" in told
    bodies = sorted(message.text for message in cluster.messages(topic))
    assert bodies == sorted(["before", *["child"] * 3, *["parent"] * 3, "after"])


def test_brokers_see_two_producers_after_a_fork(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    text = f"""
    producer = Producer("two-of-us")
    producer.start()
    producer.send(Message({topic!r}, b"parent"))
    if os.fork() == 0:
        producer.send(Message({topic!r}, b"child"))
    say("ready")
    signal.pause()
    """
    with program(text, cluster.name_servers) as one, cluster.admin() as admin:
        assert [one.line(), one.line()] == ["ready", "ready"]

        def seen() -> set[str]:
            with contextlib.suppress(errors.NotFound):
                found = admin.connections.producers("two-of-us", topic)
                return {each.clientId for each in found.connectionSet}
            return set()

        cluster.wait_until(lambda: len(seen()) == 2)  # the first heartbeat follows the first send


def test_a_pool_of_forked_processes_shares_a_producer(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    text = f"""
    import multiprocessing
    producer = Producer("pool")
    producer.start()

    def work(number):
        return producer.send(Message({topic!r}, b"%d" % number)).message_id

    with multiprocessing.get_context("fork").Pool(4) as pool:
        say(len(set(pool.map(work, range(200), 10))))
    """
    with program(text, cluster.name_servers) as one:
        assert one.end() == (0, "200\n")
    assert sorted(int(message.text) for message in cluster.messages(topic)) == list(range(200))


def test_a_consumer_is_not_started_in_a_child_and_can_be(cluster: Cluster) -> None:
    topic = stored(cluster, b"for the parent")
    text = f"""
    consumer = Consumer("families", consume_from_where=FIRST, rebalance_wait_interval=0.5)
    got = threading.Event()

    @consumer.on({topic!r})
    def handle(message):
        say(message.text)
        got.set()

    consumer.start()
    got.wait()
    got.clear()
    child = os.fork()
    if child == 0:
        try:
            consumer.queues()
        except errors.NotRunning as error:
            say("child:", "not running" in str(error) or error)
        consumer.start()
        while len(consumer.queues()) != 2:
            time.sleep(0.05)
        say("child has", len(consumer.queues()))
        consumer.close()
        os._exit(0)
    say("ended", end_of(child), bool(consumer.queues()))
    consumer.close()
    """
    with program(text, cluster.name_servers) as one:
        code, told = one.end()
    assert code == 0, told
    once = list(dict.fromkeys(told.splitlines()))  # what is not committed yet may come to the child too
    assert once == ["for the parent", "child: True", "child has 2", "ended 0 True"]


def test_a_parent_that_is_killed_is_seen_to_be_gone_although_its_child_lives(cluster: Cluster) -> None:
    topic = stored(cluster, b"A-1")
    text = consuming(topic, "orphans") + "\n".join(
        (
            "consumer.start()",
            "if os.fork() == 0: say('child'); signal.pause()",
            "time.sleep(0.5)",
            "os.kill(os.getpid(), signal.SIGKILL)",
        )
    )
    with program(text, cluster.name_servers) as one, cluster.admin() as admin:
        while one.line() != "child":
            pass

        def nobody() -> bool:
            try:
                return not admin.connections.consumers("orphans").connectionSet
            except errors.NotFound:
                return True

        cluster.wait_until(nobody, 20)  # without a heartbeat it would be two minutes


def test_handlers_may_use_blocking_clients_and_async_ones_are_told_to_await(cluster: Cluster) -> None:
    topic, answers = stored(cluster, b"A-1"), cluster.create_topic()
    text = f"""
    producer = Producer("answering")
    producer.start()
    consumer = Consumer("asked", consume_from_where=FIRST)
    over = threading.Event()

    @consumer.on({topic!r})
    async def wrong(message):
        try:
            producer.send(Message({answers!r}, b"never"))
        except errors.InsideEventLoop as error:
            say("turbopump.aio" in str(error))
        await __import__("asyncio").wrap_future(producer.send_async(Message({answers!r}, message.body)))

    @consumer.on({answers!r})
    def right(message):
        say(message.text, producer.send(Message("Elsewhere", b"x")).status.name)
        over.set()

    with consumer:
        over.wait(20)
    """
    with program(text, cluster.name_servers) as one:
        assert one.end() == (0, "True\nA-1 SEND_OK\n")


def test_many_threads_share_a_producer(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    text = f"""
    ids = []
    with Producer("threads") as producer:
        def work():
            for _ in range(50):
                ids.append(producer.send(Message({topic!r}, b"x")).message_id)
        threads = [threading.Thread(target=work) for _ in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    say(len(set(ids)), threading.active_count())
    """
    with program(text, cluster.name_servers) as one:
        assert one.end() == (0, "800 2\n")  # the loop's thread is the second
    assert len(cluster.messages(topic)) == 800
