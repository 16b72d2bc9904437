"""The blocking coordinator of global transactions.

Written by scripts/faces.py from turbopump.transactions.distributed.coordinator: change that.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from turbopump.client.message import Message
from turbopump.client.options import ClientOptions
from turbopump.client.produce.ledger import KeyOf
from turbopump.client.settings import ClientSettings
from turbopump.client.signature import spelled_out
from turbopump.client.world import World
from turbopump.transactions.blocking.coordinator_face import CoordinatorFace, FaceBlock
from turbopump.transactions.distributed.coordinator import TCC_TIMEOUT_S, XA_TIMEOUT_S, CommitProtocol
from turbopump.transactions.distributed.coordinator import Coordinator as AsyncCoordinator
from turbopump.transactions.distributed.figures import CoordinatorFigures
from turbopump.transactions.distributed.journal import Journal
from turbopump.transactions.distributed.machine import GlobalOutcome
from turbopump.transactions.distributed.participants import Connect, Saga, T, Tcc
from turbopump.transactions.distributed.recovery import PREPARED_AGE_S
from turbopump.transactions.distributed.saga_runs import SagaOutcome
from turbopump.transactions.distributed.tcc_block import TccTransaction as AsyncTccTransaction
from turbopump.transactions.distributed.xa_block import BranchResource
from turbopump.transactions.distributed.xa_block import XaTransaction as AsyncXaTransaction

__all__ = ["Coordinator", "TccTransaction", "XaTransaction"]


class XaTransaction(FaceBlock[AsyncXaTransaction]):
    """One XA transaction: connections by resource, and messages. Made by `coordinator.xa()`.

        with bank.xa(timeout=10) as t:
            t["icbc"].execute("UPDATE accounts SET cents = cents - 1000000 WHERE id = 'A'")
            t["ccb"].execute("UPDATE accounts SET cents = cents + 1000000 WHERE id = 'B'")
            t.send(Message("Transferred", b"A to B"))

    Leaving the block well commits all of it, an exception rolls all of it back. Raises Aborted when it could
    not be committed, and InDoubt when that is not known yet. Other readers may see one branch committed a
    moment before the other: the commit is atomic, not isolated.
    """

    def __getitem__(self, name: str) -> Any:
        """The connection of a resource, of the kind that its `connect` makes; the block commits it."""
        return self._call(lambda core: core[name])

    def send(self, *messages: Message, by: KeyOf | None = None) -> None:
        """Stores messages that consumers see if and only if the transaction commits, also delayed ones.

        `by`: messages of one key go to one queue, in order. A delay counts from the commit on.
        """
        self._run(lambda core: core.send(*messages, by=by))


class TccTransaction(FaceBlock[AsyncTccTransaction]):
    """One TCC transaction: `call` tries a participant. Made by `coordinator.tcc()`.

        with bank.tcc() as t:
            t.call(debit, order)
            t.call(credit, order)

    Leaving the block well confirms all of them, an exception cancels all of them, also those whose Try was
    not answered. Raises Aborted when the decision was an abort, and InDoubt when it is not known yet.
    """

    def call(self, participant: Tcc[T], input: T) -> Any:
        """Tries a participant, and returns what its Try returned. Raises Declined, or what the Try raised.

        An exception should leave the block: what was tried is cancelled then. Caught, the block may go on
        only to its end: a transaction with a Try that failed is not confirmed.
        """
        return self._run(lambda core: core.call(participant, input))


@spelled_out(ClientSettings)
class Coordinator(CoordinatorFace):
    """Opens and finishes global transactions, as a process of a group that shares databases and participants.

        bank = Coordinator("bank", name_servers="127.0.0.1:9876",
                           resources={"icbc": icbc_connect, "ccb": ccb_connect})

        with bank:
            with bank.xa(timeout=10) as t:
                t["icbc"].execute("UPDATE accounts SET cents = cents - 1000000 WHERE id = 'A'")
                t["ccb"].execute("UPDATE accounts SET cents = cents + 1000000 WHERE id = 'B'")

    `group`: all processes of a group have the same resources and participants, and finish each other's
    transactions. `resources`: functions that open a connection, blocking or async, or an XaResource or
    SqliteLastResource for their options. `participants`: what TCC and SAGA use, so that this process can go
    on with those that others have begun. Every other keyword is a setting of a client; see docs/settings.md.

    `with` finishes what was left behind, in the background: transactions without an owner are
    claimed at the start and every 5 seconds, and every minute the databases are searched for prepared
    branches. Without it the coordinator connects at its first use, and finishes only its own transactions.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        resources: Mapping[str, Connect | BranchResource] | None = None,
        participants: Iterable[Tcc[Any] | Saga[Any]] = (),
        journal: Journal | None = None,
        cluster: str = "",
        world: World | None = None,
        **settings: Unpack[ClientOptions],
    ) -> None:
        super().__init__(
            lambda: AsyncCoordinator(
                group,
                name_servers=name_servers,
                resources=resources,
                participants=participants,
                journal=journal,
                cluster=cluster,
                world=world,
                **settings,
            )
        )

    @property
    def group(self) -> str:
        """Its group."""
        return self._core.group

    def start(self) -> None:
        """Connects, and finishes what others have left behind, in the background until `close`.

        Raises LedgerNotSupported at brokers that keep no global transactions.
        """
        self._start(lambda core: core.start())

    def close(self) -> None:
        """Waits up to 5 seconds for transactions under way, then leaves the rest to another process."""
        self._close()

    def xa(
        self, *resources: str, timeout: float = XA_TIMEOUT_S, protocol: CommitProtocol = "2pc"
    ) -> XaTransaction:
        """Returns a block whose work in several databases commits together or not at all.

        `resources`: those that it needs, all by default; each is a connection of its own. `timeout`: seconds
        from the beginning of the block to the decision, after which only an abort is possible.

        `protocol="3pc"` adds a round, PreCommit. It is for learning, and for networks you trust: in a network
        that is cut in two, participants of three-phase commit can decide differently, which two-phase commit
        never does. Use "2pc" for money.
        """
        return XaTransaction(
            self, self._new_block(lambda core: core.xa(*resources, timeout=timeout, protocol=protocol))
        )

    def tcc(self, *, timeout: float = TCC_TIMEOUT_S) -> TccTransaction:
        """Returns a block whose calls are tried at once, and confirmed or cancelled together at its end.

        `timeout`: seconds from the beginning of the block to the decision; all is cancelled after that.
        """
        return TccTransaction(self, self._new_block(lambda core: core.tcc(timeout=timeout)))

    def run(
        self, saga: Saga[T], input: T, *, gid: str | None = None, timeout: float | None = None
    ) -> SagaOutcome:
        """Runs a saga to its end, and returns the results of its steps.

        The same `gid` twice is one saga: the second call waits for the first one, in whatever process it
        runs, and gets its outcome. It must be new in the cluster, also among other groups, and is made by
        the coordinator if None. Raises Aborted when the saga was compensated, Parked when an operator is
        needed, and InDoubt after `timeout` seconds: the saga goes on then, and `outcome` says later how it
        ended.
        """
        return self._run(lambda core: core.run(saga, input, gid=gid, timeout=timeout))

    def outcome(self, gid: str) -> GlobalOutcome | None:
        """Returns how a transaction has ended, or will: after InDoubt. None: it is not decided, or not known.

        One that is not known a day after its begin was aborted, or its end is forgotten.
        """
        return self._run(lambda core: core.outcome(gid))

    def recover_once(self, *, older_than: float = PREPARED_AGE_S) -> int:
        """Claims and sweeps once, waits for that, and returns how many transactions it has worked on.

        `older_than`: seconds that a branch must have been prepared. It saves work, and decides nothing.
        """
        return self._run(lambda core: core.recover_once(older_than=older_than))

    def figures(self) -> CoordinatorFigures:
        """Returns what it has counted: outcomes, repeated calls, prepared branches."""
        return self._call(lambda core: core.figures())
