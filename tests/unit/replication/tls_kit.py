"""Certificates and settings of pairs and groups that use TLS."""

from tests.unit.broker_group.kit import Group
from tests.unit.remoting.tls_kit import certificates
from tests.unit.replication.kit import NAME_SERVER_IP, TOOL_IP, Node

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.remoting.client import Client
from turbopump.remoting.tls import networks_of
from turbopump.remoting.tls_settings import TlsSettings, changed
from turbopump.testing.disk import SimulatedDisk

TLS = {
    "tlsServerMode": "enforcing",
    "tlsServerCertPath": "/pem/cert",
    "tlsServerKeyPath": "/pem/key",
    "tlsServerNeedClientAuth": "require",
    "tlsServerTrustCertPath": "/pem/ca",
    "tlsEnable": "true",
    "tlsClientCertPath": "/pem/cert",
    "tlsClientKeyPath": "/pem/key",
    "tlsClientTrustCertPath": "/pem/ca",
}


def conf(**others: str) -> str:
    return "".join(f"{key}={text}\n" for key, text in {**TLS, **others}.items())


def settings() -> TlsSettings:
    made = TlsSettings()
    for key, text in TLS.items():
        made = changed(made, key, text)
    return made


class SecureWorld(Group):
    """A name server and brokers, alone, as a pair or as a group, that all encrypt."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        config = NamesrvConfig(listen_port=9876, bind_address=NAME_SERVER_IP, tls=settings())
        disk = with_files(SimulatedDisk(self.chance, self.clock))
        self.name_server = NameServer(config, self.network.at(NAME_SERVER_IP), self.clock, disk)
        self.tool = Client(networks_of(settings(), self.network.at(TOOL_IP), disk).requests, self.clock)

    def node(self, conf: str = "") -> Node:
        node = super().node(conf)
        with_files(node.disk)
        return node

    async def __aenter__(self) -> "SecureWorld":
        await self.name_server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def with_files(disk: SimulatedDisk) -> SimulatedDisk:
    disk.make_dirs("/pem")
    made = certificates()
    for name, data in (("cert", made.server.cert), ("key", made.server.key), ("ca", made.root.cert)):
        disk.write(f"/pem/{name}", data)
    return disk
