"""Half messages as a kind of message: a send that opens a transaction is stored in the half topic.

`transactions.py` keeps the open ones; `requests.py` and `checks.py` end them.
"""

from turbopump.broker.delay.level_records import delay_level
from turbopump.broker.delay.timer_intake import TimerIntake
from turbopump.broker.produce.kinds import IncomingMessage, Placement
from turbopump.broker.produce.targets import BrokerSendRules
from turbopump.broker.storage import Storage
from turbopump.broker.transactions.records import ADDED_LATER, is_half, prepare
from turbopump.broker.transactions.transactions import OpenTransactions
from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.names import HALF_TOPIC
from turbopump.store.append import Appended, Draft

# A half message that is accepted can be renewed for every check: its later properties must fit as well.
MAX_PROPERTIES = properties.MAX_BYTES - ADDED_LATER


class HalfMessages:
    """The `WaitingKind` of half messages, which wait in RMQ_SYS_TRANS_HALF_TOPIC for commit or rollback."""

    topic = HALF_TOPIC
    properties = frozenset({properties.TRANSACTION_PREPARED})

    def __init__(
        self, store: Storage, transactions: OpenTransactions, timers: TimerIntake, rules: BrokerSendRules
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._timers = timers
        self._rules = rules

    def claim(self, message: IncomingMessage) -> Placement | None:
        pairs = message.pairs
        if pairs.get(properties.TRANSACTION_PREPARED) != "true":
            return None
        level = delay_level(pairs)
        if not is_half(pairs, level, message.reconsume_times):
            return None
        if self._rules.rejects_transactions:
            remark = f"the broker[{self._rules.broker_ip}] sending transaction message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        if level <= 0:
            self._timers.check(pairs)
        prepare(pairs, message.topic, message.queue_id, message.unique_key)
        return Placement(self._store.queues.queue(HALF_TOPIC, 0), max_properties=MAX_PROPERTIES)

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        return None

    def stored(self, draft: Draft, appended: Appended) -> None:
        self._transactions.prepared(draft, appended)

    def batch_refusal(self, pairs: dict[str, str]) -> str | None:
        if not is_half(pairs, 0, 0):
            return None
        return "a message of a batch cannot be the half message of a transaction; send it alone"
