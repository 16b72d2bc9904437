"""The blocking pull consumer.

Written by scripts/faces.py from turbopump.client.pull.consumer: change that.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self, Unpack

from turbopump.client.blocking.pull_consumer_face import PullConsumerFace
from turbopump.client.files import FileAccess
from turbopump.client.group.listeners import QueuesListener
from turbopump.client.group.subscription import ALL
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import ConsumeHook, Filter
from turbopump.client.options import PullOptions
from turbopump.client.pull.consumer import PullConsumer as AsyncPullConsumer
from turbopump.client.pull.member import Scheduled
from turbopump.client.pull.single_pulls import Pulled
from turbopump.client.settings import PullSettings
from turbopump.client.signature import spelled_out
from turbopump.client.times import Time
from turbopump.client.world import World

__all__ = ["PullConsumer"]


@spelled_out(PullSettings)
class PullConsumer(PullConsumerFace[AsyncPullConsumer]):
    """Reads messages when you ask for them, as a member of a group or from queues of your choice.

    As a member: the group's queues are divided among its members, and each message is read by one of them.

        with PullConsumer("audit", topics=["OrderTopic"], name_servers="127.0.0.1:9876") as consumer:
            consumer.seek_to_time("2026-11-01T00:00:00Z")
            for message in consumer:
                print(message.topic, message.text)

    With queues of your own choice, and offsets committed when you say so:

        with PullConsumer("audit", auto_commit=False) as consumer:
            consumer.assign(consumer.queues("OrderTopic"))
            while messages := consumer.poll(timeout=1):
                work(messages)
                consumer.commit()

    Commits: with `auto_commit` (the default), what a call of `poll` or a step of the iteration gave out
    counts as done when the *next* call begins, and is committed within `auto_commit_interval`. Leaving the
    `with` block normally commits the rest too; leaving it by an exception does not commit what the last
    call gave out, so it is delivered again. A group that never committed begins where `consume_from_where`
    says.

    With `message_model=MessageModel.BROADCASTING` each member reads all queues and keeps its offsets in a
    file below `local_offset_store_dir`, one for each `instance_name` of a host.

    `hooks` are called when messages are given out, `before` and `after` at once, because only the program
    knows what becomes of the messages. `filters` are functions, called on the event loop, that return whether
    a message is wanted; an unwanted one counts as consumed.

    Only one task may read: two that poll in turns would count each other's messages as done.

    `topics` is a list of topics, or a mapping from topic to an expression over tags such as `"paid || open"`.
    All other keyword arguments are the settings of docs/settings.md.
    """

    _restarts_after_fork = False

    def __init__(
        self,
        group: str,
        *,
        topics: Sequence[str] | Mapping[str, str] = (),
        name_servers: str | Sequence[str] | None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[Filter] = (),
        world: World | None = None,
        disk: FileAccess | None = None,
        **settings: Unpack[PullOptions],
    ) -> None:
        super().__init__(
            lambda: AsyncPullConsumer(
                group,
                topics=topics,
                name_servers=name_servers,
                hooks=hooks,
                filters=filters,
                world=world,
                disk=disk,
                **settings,
            )
        )

    @property
    def group(self) -> str:
        """Its group."""
        return self._core.group

    @property
    def settings(self) -> PullSettings:
        """All settings, defaults included."""
        return self._core.settings

    def start(self) -> None:
        """Joins the group and starts reading; returns when the brokers know this consumer.

        `with` calls it. Raises NoNameServer when none can be reached.
        """
        self._start(lambda core: core.start())

    def close(self) -> None:
        """Commits what was given out (with `auto_commit`), leaves the group and closes. May be called again.

        An iteration in another task ends; a `poll` that waits raises NotRunning.
        """
        self._close()

    @property
    def is_running(self) -> bool:
        return self._call(lambda core: core.is_running)

    def subscribe(
        self, topic: str, tags: str = ALL, *, sql: str | None = None, module: str | None = None
    ) -> None:
        """Reads this topic as a member of the group; a topic that is subscribed already gets the new tags.

        `sql` instead of tags chooses by properties, at brokers with SQL92; others refuse it. `module` names a
        filter module of a Turbopump broker. May be called before the start and after it; then it returns when
        the brokers know and this consumer's queues are being read. Raises InvalidArgument after `assign`: a
        consumer uses one or the other.

            consumer.subscribe("OrderTopic", "paid || refunded")
            consumer.subscribe("OrderTopic", sql="price > 10 AND region = 'EU'")
        """
        self._run(lambda core: core.subscribe(topic, tags, sql=sql, module=module))
        self._note(("subscribe", topic), lambda core: core.subscribe(topic, tags, sql=sql, module=module))

    def unsubscribe(self, topic: str) -> None:
        """Stops reading the topic; fetched messages that were not given out yet are dropped."""
        self._run(lambda core: core.unsubscribe(topic))
        self._note(("unsubscribe", topic), lambda core: core.unsubscribe(topic))

    def assign(
        self,
        queues: Iterable[MessageQueue],
        tags: str = ALL,
        *,
        sql: str | None = None,
        module: str | None = None,
    ) -> None:
        """Reads exactly these queues from now on, independent of other members of the group.

        Queues that were assigned before and still are continue at their position. Each new one begins where
        the group committed, or where `consume_from_where` says; `seek` moves it. Raises InvalidArgument after
        `subscribe`, and for no queue at all.

            consumer.assign(consumer.queues("OrderTopic"))
        """
        self._run(lambda core: core.assign(queues, tags, sql=sql, module=module))

    def assignment(self) -> tuple[MessageQueue, ...]:
        """Returns the queues that this consumer reads now, sorted."""
        return self._call(lambda core: core.assignment())

    def poll(self, timeout: float | None = None) -> list[MessageExt]:
        """Returns up to `pull_batch_size` messages of one queue; [] when none came within `timeout` seconds.

        Without `timeout` it waits up to `poll_timeout`. What earlier calls gave out counts as done now (see
        the class about commits). Queues take turns.

            for message in consumer.poll(timeout=1):
                print(message.text)
        """
        return self._run(lambda core: core.poll(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        """Waits for the next message and returns it; the iteration ends when the consumer is closed."""
        return self._next(lambda core: core.__anext__())

    def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Moves each queue back to the first of these messages: it and all later ones are given out again.

        For unused messages of the last call. A queue that is no longer assigned is skipped.
        """
        self._call(lambda core: core.give_back(messages))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stops fetching and giving out messages of these queues (default: all assigned now) until `resume`.

        The queues stay assigned to this consumer.
        """
        self._call(lambda core: core.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Fetches and gives out messages of these queues (default: all assigned now) again after `pause`."""
        self._call(lambda core: core.resume(queues))

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message to be given out of an assigned queue."""
        return self._call(lambda core: core.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continues at this offset of an assigned queue; its fetched messages are dropped.

        Raises InvalidArgument for an offset that the queue does not have; its end is allowed.
        """
        self._run(lambda core: core.seek(queue, offset))

    def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continues at the first message of these queues (default: all that are assigned)."""
        self._run(lambda core: core.seek_to_begin(queues))

    def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continues behind the last message of these queues (default: all that are assigned)."""
        self._run(lambda core: core.seek_to_end(queues))

    def seek_to_time(self, when: Time, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continues at the first message stored at that time or later, else at the end; default: all queues.

        `when` is a datetime with a time zone, a negative timedelta from now, milliseconds since 1970, ISO
        text with a zone, or an age such as `10m`.

            consumer.seek_to_time("2026-11-01T00:00:00Z")
            consumer.seek_to_time(-timedelta(hours=2))
        """
        self._run(lambda core: core.seek_to_time(when, queues))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commits offsets to the brokers and returns when they have them. Raises Refused or OSError.

        When broadcasting they go to the local file; a failed write is only logged.

        Without offsets: everything that was given out so far, in all assigned queues. An offset is that of
        the next message to read; the queue may be any.

            consumer.commit()
            consumer.commit({message.queue: message.offset + 1})
        """
        self._run(lambda core: core.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset; without one, 0 in a new queue, the end of an empty one, else None.

        Without a commit the broker decides between these; when broadcasting it is always None.
        """
        return self._run(lambda core: core.committed(queue))

    def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Sends a message back to its broker, to be delivered to the group again later.

        The delay grows each time; after `max_reconsume_times` the message goes to the group's dead-letter
        topic.

        `delay_level`: 1 to 18 chooses the delay, 0 leaves it to the broker, -1 means dead letter at once.
        Copies come through the topic `%RETRY%<group>`: subscribe to it too, if this consumer is to read them.
        Raises ConnectionError when no broker accepted it.
        """
        self._run(lambda core: core.send_back(message, delay_level))

    def on_queues_changed(self, topic: str, callback: QueuesListener) -> None:
        """Registers a callback for changes of the topic's queues, and of those that this consumer reads.

        `callback(topic, queues, mine)` gets all readable queues and those of this consumer; it may be `def`
        (it runs in a thread) or `async def`. Checks every `topic_metadata_check_interval`, and at each
        rebalance of the group.
        """
        self._call(lambda core: core.on_queues_changed(topic, callback))
        self._note(
            ("on_queues_changed", topic, callback), lambda core: core.on_queues_changed(topic, callback)
        )

    def schedule(self, topic: str, callback: Scheduled) -> None:
        """Calls `callback(queue)` for each assigned queue of the topic, again after the seconds it returns.

        If it returns None, that is 0.2 s. There is one call at a time for each queue. The callback pulls and
        commits by itself, with `pull` and `commit`. After an exception, which is logged, the next call comes
        in a second. Like `subscribe`, this joins the group; `unsubscribe` ends it.

            def look(queue):
                result = consumer.pull(queue, consumer.committed(queue) or 0)
                work(result.messages)
                consumer.commit({queue: result.next_offset})
                return 0 if result.messages else 5

            consumer.schedule("OrderTopic", look)
        """
        self._run(lambda core: core.schedule(topic, callback))
        self._note(("schedule", topic), lambda core: core.schedule(topic, callback))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns all readable queues of the topic. Raises TopicNotFound."""
        return self._run(lambda core: core.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        n: int | None = None,
        expression: str = ALL,
        wait: float = 0.0,
        *,
        sql: str | None = None,
        module: str | None = None,
    ) -> Pulled:
        """Pulls once: at most `n` messages (default `pull_batch_size`) of the queue from `offset` on.

        When there are none, the broker waits for one up to `wait` seconds. The pull moves no position and
        commits nothing: call `commit({queue: result.next_offset})`. Raises Refused or OSError.

            offset = consumer.committed(queue) or 0
            result = consumer.pull(queue, offset, 32, "paid", wait=20)
            for message in result.messages: ...
        """
        return self._run(lambda core: core.pull(queue, offset, n, expression, wait, sql=sql, module=module))

    def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the first message that the queue still has."""
        return self._run(lambda core: core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the queue's next message will have."""
        return self._run(lambda core: core.max_offset(queue))

    def offset_at(self, queue: MessageQueue, when: Time) -> int:
        """Returns the offset of the first message stored at that time or later; if there is none, the end.

        Brokers of 4.x return the nearest message, before or after that time.
        """
        return self._run(lambda core: core.offset_at(queue, when))
