"""What our blocking client can do, as one table of small stories; each tells facts that must not depend on
who serves: our servers, Apache's 4.9.7 and Apache's 5.5.0.

All stories run at once on one broker, each with topics and groups of its own. Its delay levels are short, and
of one topic the first messages are gone.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from turbopump import Message

from . import our_client_consuming, our_client_partners, our_client_pulling, our_client_sending, peers
from .our_client_stage import MIB, Facts, Old, Stage, noise
from .peers import Cluster

FILE_SIZE = 8 * MIB
CONF = {
    "messageDelayLevel": "1s 2s 2s 4s 6s 8s",
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "maxMessageSize": str(5 * MIB),
}
AT_ONCE = 8
STORIES = {
    **our_client_sending.STORIES,
    **our_client_consuming.STORIES,
    **our_client_pulling.STORIES,
    **our_client_partners.STORIES,
}

Told = dict[str, Future[Facts]]


def tell_all(kinds: tuple[str, ...], home: Path, only: tuple[str, ...] = ()) -> dict[str, Future[Told]]:
    """The stories of each kind of server, side by side. An answer may be an exception."""
    pool = ThreadPoolExecutor(len(kinds))
    telling = {kind: pool.submit(tell, kind, home / kind, only) for kind in kinds}
    pool.shutdown()  # a thread that ends early would end the servers that it has started
    return telling


def tell(kind: str, home: Path, only: tuple[str, ...] = ()) -> Told:
    cluster = peers.start(kind, peers.place(home), CONF)
    try:
        old = old_topic(cluster)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return {
                name: pool.submit(one.play, Stage(name.replace("_", "-"), cluster, home / name, old))
                for name, one in STORIES.items()
                if kind in one.servers and (not only or name in only)
            }
    finally:
        cluster.discard()


def old_topic(cluster: Cluster) -> Old:
    """Retention has taken its beginning: the first file of the log is removed while the broker is down."""
    stage = Stage("old", cluster, cluster.place.home / "old", Old("", 0.0))
    topic = stage.topic(queues=1)
    with stage.producer() as producer:
        stage.send(producer, topic, "gone-1", "gone-2")
        for _ in range(FILE_SIZE // (2 * MIB)):
            producer.send(Message("filler", noise(2 * MIB)))
        stage.send(producer, topic, "first-1", "first-2")
        time.sleep(3.0)  # 4.9.7 takes the nearest message for a time
        half = time.time()
        stage.send(producer, topic, "second-1", "second-2")
    cluster.stop_broker()
    min((cluster.store_dir / "commitlog").iterdir()).unlink()
    cluster.start_broker()
    return Old(topic, half)
