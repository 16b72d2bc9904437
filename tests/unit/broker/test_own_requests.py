"""What a broker and a name server ask of other servers is signed when they have credentials."""

from dataclasses import replace

from tests.kit import virtual
from tests.unit.broker.desk import CONFIG
from tests.unit.client.recorded_network import RecordedNetwork

from turbopump.auth.signature import Credentials, is_signed_by
from turbopump.broker.config import BrokerIdentity, ListenConfig, NameServerConfig
from turbopump.broker.server import Broker
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.routes import MinBrokerIdChange
from turbopump.namesrv.server import NameServer
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork

INNER = Credentials("inner1", "inner-secret")
NAMESRV = "127.0.0.1:9876"


async def asked(credentials: Credentials | None) -> list[Command]:
    """Returns what a master, its slave and a name server ask of each other."""
    clock, chance = VirtualClock(), Chance(1)
    network = RecordedNetwork(MemoryNetwork())
    settings = NamesrvConfig(bind_address="127.0.0.1", notify_min_broker_id_changed=True)
    names = NameServer(settings, network, clock, SimulatedDisk(chance, clock), credentials=credentials)
    await names.start()
    brokers: list[Broker] = []
    for number, role in enumerate(("ASYNC_MASTER", "SLAVE")):
        config = replace(
            CONFIG,
            identity=BrokerIdentity(broker_name="broker-a", broker_id=number, role=role),
            listening=ListenConfig(bind_address="127.0.0.1", port=10911 + 10 * number),
            name_servers=NameServerConfig((NAMESRV,)),
        )
        disk = SimulatedDisk(chance, clock)
        broker = Broker(config, network, clock, disk, SimulatedWorkers(disk), chance, lambda: "127.0.0.1")
        broker.credentials = credentials
        await broker.start()
        brokers.append(broker)
    names._notify(MinBrokerIdChange("broker-a", 0, "127.0.0.1:10911", None, None, ("127.0.0.1:10921",)))
    await clock.sleep(90)
    for broker in reversed(brokers):
        await broker.stop()
    await names.stop()
    return network.remoting_requests()


@virtual
async def test_registration_and_the_requests_of_a_slave_are_signed() -> None:
    found = await asked(INNER)
    codes = {command.code for command in found}
    assert codes >= {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REPLICA_COMPARE,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    }
    for command in found:
        assert (command.ext or {}).get("AccessKey") == "inner1", command.code
        assert is_signed_by(command, ["inner-secret"]), command.code


@virtual
async def test_without_credentials_they_are_not_signed() -> None:
    assert not any("Signature" in (command.ext or {}) for command in await asked(None))


@virtual
async def test_a_broker_shows_no_secret() -> None:
    clock, chance = VirtualClock(), Chance(1)
    disk = SimulatedDisk(chance, clock)
    broker = Broker(CONFIG, MemoryNetwork(), clock, disk, SimulatedWorkers(disk), chance)
    broker.credentials = INNER
    assert "inner-secret" not in repr(vars(broker))
