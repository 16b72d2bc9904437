"""Which of a broker's servers a consumer reads next: the master, or a slave for one that is far behind.

In: the settings, the consumer's group, and whether what it read is too old to be in memory. Out: the id that
the answer to a pull suggests. On a slave also: whether its master is there, so that consumers are sent back
to it. The rules are Apache's, but a slave never answers at once what its consumer can only ask again.
"""

from turbopump.broker.config import ReplicationRules
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.protocol.addresses import MASTER_ID

MASTER = str(MASTER_ID)


class ReadServers:
    """Chooses the broker id (master or slave) that an answer to a pull suggests for the next pull."""

    def __init__(self, groups: SubscriptionGroups, rules: ReplicationRules, is_slave: bool = False) -> None:
        self.is_slave = is_slave
        self.has_master = False
        """On a slave: whether its master is there, so that consumers can go back to it."""
        self._groups = groups
        self.configure(rules)

    def configure(self, rules: ReplicationRules) -> None:
        self.may_suggest = rules.slave_reads
        """Whether anything but the master may be suggested."""
        self.keeps_offsets = self.is_slave and not rules.offset_check_in_slave
        """Whether a consumer outside of a queue is left where it is: the master may have what it asks for."""

    def suggested(self, group: str, is_old: bool) -> str:
        """Returns the id of the server to read next; `is_old`: the group is far behind."""
        found = self._groups.find(group) if self.may_suggest else None
        if found is None:
            return MASTER
        if is_old:
            return str(found.config.whichBrokerWhenConsumeSlowly)
        return MASTER if self.has_master else str(found.config.brokerId)
