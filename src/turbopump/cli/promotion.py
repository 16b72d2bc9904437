"""Promotion of a slave to the master of its broker name: what speaks against it, and the change of its file.

`objections` takes what is known of a slave and its master and returns reasons not to promote it. `evidence`
asks the name servers and the master. The running broker is restarted by `cli/broker.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turbopump.broker.config import MasterRole
from turbopump.broker.settings import variable
from turbopump.cli.conf_file import change_file
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import ClusterInfo
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody
from turbopump.remoting.client import Client

TIMEOUT_S = 3.0
KEYS = ("brokerRole", "brokerId")


@dataclass(frozen=True, slots=True)
class SlaveFacts:
    """What is known of a slave that is to be promoted."""

    name: str
    role: str
    missing: str = ""
    """What its copy lacks; empty: it is complete."""
    stopped: str = ""
    """Why its copy was found not to be one; empty: it was not."""
    master: str = ""
    """Where it saw its master last; empty: that is not known."""


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """What the name servers say of the master of a broker name, and whether it answers."""

    silent_name_servers: Sequence[str] = ()
    asked: int = 0
    live: str = ""
    """Address of a master that answers; empty: none does."""


def objections(slave: SlaveFacts, master: MasterFacts) -> list[str]:
    """Returns the reasons not to promote a slave; none: it may be promoted."""
    found = []
    if slave.role != "SLAVE":
        return [f"{slave.name} is not a slave: its brokerRole is {slave.role}"]
    if slave.missing:
        found.append(f"its copy is incomplete: {slave.missing}")
    if slave.stopped:
        found.append(f"its log was found not to be a copy of its master's: {slave.stopped}")
    if master.live:
        found.append(
            f"the master of {slave.name} at {master.live} answers: stop it first, or both take messages"
        )
    if master.asked == 0:
        found.append("no name server is configured to ask for a live master: give --namesrv")
    elif len(master.silent_name_servers) == master.asked:
        silent = ", ".join(master.silent_name_servers)
        found.append(
            f"no name server answers ({silent}), so a master may live where it is not seen from here"
        )
    return found


async def evidence(client: Client, name_servers: Sequence[str], slave: SlaveFacts) -> MasterFacts:
    """Asks name servers for the slave's master; returns which were silent, and a master that answers."""
    silent, masters = [], [slave.master] if slave.master else []
    for address in name_servers:
        try:
            answer = await client.call(address, request(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S)
            known = ClusterInfo.decode(answer.body).brokerAddrTable.get(slave.name)
        except (OSError, BrokenBody):
            silent.append(address)
        else:
            if known is not None and (at := known.brokerAddrs.get(MASTER_ID)):
                masters.append(at)
    live = [address for address in dict.fromkeys(masters) if await _answers_as_master(client, address)]
    return MasterFacts(silent, len(name_servers), live[0] if live else "")


async def _answers_as_master(client: Client, address: str) -> bool:
    """Whether a broker at this address answers, unless it says that it is a slave."""
    try:
        answer = await client.call(address, request(RequestCode.REPLICA_STATUS), TIMEOUT_S)
    except OSError:
        return False
    return not (answer.code == ResponseCode.SUCCESS and b'"role":"SLAVE"' in answer.body)


def write(path: str, role: MasterRole) -> str:
    """Writes the role of a master to a broker.conf; returns the path of the old file's copy."""
    return change_file(path, {"brokerRole": role, "brokerId": str(MASTER_ID)})


def overridden(environ: Mapping[str, str]) -> list[str]:
    """Returns a line for each environment variable that wins over what was written to the file."""
    return [
        f"{variable(key)} in the environment wins over {key} in the file: change or remove it"
        for key in KEYS
        if variable(key) in environ
    ]
