"""Lists the clusters, their brokers and the addresses of the brokers."""

from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls, NotFound
from turbopump.protocol import bodies
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.display import NotebookTable


class ClusterNotFound(NotFound):
    """No name server knows a cluster of that name."""


class BrokerNotFound(NotFound):
    """No name server knows a broker of that name."""


@dataclass(frozen=True, slots=True, order=True, repr=False)
class BrokerAt(NotebookTable):
    """One broker process: cluster, broker name, id (0: the master, else a slave) and address."""

    cluster: str
    name: str
    id: int
    address: str


@dataclass(frozen=True, slots=True, repr=False)
class Layout(NotebookTable):
    """All brokers of all clusters, in the order of cluster, name and id."""

    brokers: tuple[BrokerAt, ...]

    @property
    def clusters(self) -> list[str]:
        """The names of all clusters, in order."""
        return sorted({broker.cluster for broker in self.brokers})

    def of_cluster(self, cluster: str) -> list[BrokerAt]:
        """Returns the brokers of a cluster. Raises ClusterNotFound."""
        found = [broker for broker in self.brokers if broker.cluster == cluster]
        if not found:
            raise ClusterNotFound(f"there is no cluster {cluster}")
        return found

    def masters(self, cluster: str) -> list[str]:
        """Returns the addresses of the masters of a cluster. Raises ClusterNotFound."""
        return [broker.address for broker in self.of_cluster(cluster) if broker.id == MASTER_ID]

    def master_of(self, name: str) -> str:
        """Returns the address of the master of broker `name`. Raises BrokerNotFound."""
        for broker in self.brokers:
            if broker.name == name and broker.id == MASTER_ID:
                return broker.address
        raise BrokerNotFound(f"there is no broker {name}, or it has no master")

    def name_at(self, address: str) -> str:
        """Returns the name of the broker at an address. Raises BrokerNotFound."""
        for broker in self.brokers:
            if broker.address == address:
                return broker.name
        raise BrokerNotFound(f"no name server knows a broker at {address}")


@dataclass
class Clusters:
    """Lists the clusters, their brokers and the addresses of the brokers."""

    asking: AdminCalls

    async def layout(self) -> Layout:
        """Returns all brokers of all clusters, as one of the name servers knows them.

        Example:

            layout = await admin.clusters.layout()
            print(layout.clusters, layout.masters("DefaultCluster"), layout.master_of("broker-a"))
        """
        answer = await self.asking.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return layout_of(bodies.ClusterInfo.decode(answer.body))


def layout_of(info: bodies.ClusterInfo) -> Layout:
    brokers = [
        BrokerAt(cluster, name, number, address)
        for cluster, names in info.clusterAddrTable.items()
        for name in names
        if name in info.brokerAddrTable
        for number, address in info.brokerAddrTable[name].brokerAddrs.items()
    ]
    return Layout(tuple(sorted(brokers)))
