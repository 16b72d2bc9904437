"""Why a member does not append: raised by `DLedgerServer.append`."""

from turbopump.protocol.dledger.codes import DLedgerCode


class AppendRefused(Exception):
    """Raised when nothing was appended; `code` is what DLedger answers."""

    code = DLedgerCode.ILLEGAL_MEMBER_STATE


class NotLeading(AppendRefused):
    """Raised by a member that does not lead; names the leader (None: not known) and its address."""

    code = DLedgerCode.NOT_LEADER

    def __init__(self, member: str, leader: str | None, address: str | None) -> None:
        known = f"{leader} at {address} does" if leader is not None else "no leader is known"
        super().__init__(f"{member} does not lead its group: {known}")
        self.leader = leader
        self.address = address


class LeadershipMoving(AppendRefused):
    """Raised by a leader that is giving the leadership to another member."""

    code = DLedgerCode.LEADER_TRANSFERRING

    def __init__(self, to_member: str) -> None:
        super().__init__(f"the leadership is given to {to_member}; try again in a few seconds")
        self.to_member = to_member


class PendingAppendsFull(AppendRefused):
    """Raised by a leader with too many appends that are not committed."""

    code = DLedgerCode.LEADER_PENDING_FULL
