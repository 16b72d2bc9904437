"""A name server and a broker of ours with access control, over TLS when certificates are given.

Clients are told by `environment` with whose credentials and with which certificate they come.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turbopump import Admin
from turbopump.cli.main import main
from turbopump.client.options import ClientOptions
from turbopump.errors import Refused

from . import peers, processes

Credentials = tuple[str, str]

ROOT, INNER = ("root", "root-secret-word"), ("inner", "inner-secret-word")
APP = ("app", "app-secret-word")
INNER_KEY = "innerClientAuthenticationCredentials"
CERTIFIED = "alice"  # a normal user whose certificate is her name
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    INNER_KEY: json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
}


@dataclass
class GuardedCluster(peers.Cluster):
    """`pem`: the directory that `turbopump tls init` has filled; None for servers without TLS."""

    pem: Path | None = None

    @property
    def options(self) -> ClientOptions:
        """The options of our own clients, as the super user."""
        signing: ClientOptions = {"access_key": ROOT[0], "secret_key": ROOT[1]}
        if self.pem is None:
            return signing
        certified: ClientOptions = {
            "use_tls": True,
            "tls_trust_cert_path": str(self.pem / "ca.pem"),
            "tls_cert_path": str(self.pem / f"{CERTIFIED}.pem"),
            "tls_key_path": str(self.pem / f"{CERTIFIED}-key.pem"),
        }
        return {**signing, **certified}

    def admin(self) -> Admin:
        return Admin(self.namesrv, **self.options)

    def environment(self, who: Credentials | None) -> dict[str, str]:
        """Returns the variables with which a program of Apache's signs, and dials with TLS where it must."""
        options = []
        if who is not None:
            options += [f"-Dinterop.accessKey={who[0]}", f"-Dinterop.secretKey={who[1]}"]
        if self.pem is not None:
            options += ["-Dtls.enable=true", f"-Dtls.config.file={self.pem / CERTIFIED}.properties"]
        signed = {} if who is None else {"INTEROP_ACCESS_KEY": who[0], "INTEROP_SECRET_KEY": who[1]}
        return {"JAVA_TOOL_OPTIONS": " ".join(options), **signed}

    def _wait_registered(self) -> None:
        deadline = time.monotonic() + peers.REGISTERED_WITHIN_S
        with self.admin() as admin:
            while not self._is_registered(admin):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.broker_addr} did not register:\n{self.servers[-1].tail()}")
                time.sleep(processes.POLL_S)

    def _is_registered(self, admin: Admin) -> bool:
        try:
            return any(self.broker_addr == one.address for one in admin.clusters.layout().brokers)
        except (OSError, Refused):
            return False


def certificates(directory: Path) -> Path:
    """Makes an authority and the certificates of the servers and of one user."""
    assert main(["tls", "init", str(directory), "--client", CERTIFIED]) == 0
    return directory


def start(
    home: Path,
    pem: Path | None = None,
    conf: Mapping[str, str] | None = None,
    accounts: str = "",
    guards_names: bool = True,
) -> GuardedCluster:
    """Starts both servers. `conf` is for the broker alone; with `accounts`, a file of 4.x, it has no users.

    Without `guards_names`, the name server has no access control: Apache's brokers of 4.x cannot sign.
    """
    cluster = GuardedCluster(peers.OURS, peers.place(home), pem=pem)
    encrypted = {} if pem is None else {"tlsConfigFile": str(pem / "server.properties")}
    namesrv = {
        **(USERS if guards_names else {}),
        **encrypted,
        "kvConfigPath": str(home / "namesrv" / "kvConfig.json"),
    }
    known = USERS if not accounts else {**_of_accounts(home, accounts), INNER_KEY: USERS[INNER_KEY]}
    peers.write_configuration(cluster.place, {**known, **encrypted, **(conf or {})}, namesrv)
    try:
        cluster.start_namesrv()
        cluster.start_broker()
    except BaseException:
        cluster.kill()
        raise
    return cluster


def _of_accounts(home: Path, accounts: str) -> dict[str, str]:
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(accounts)
    return {"aclEnable": "true", "authAccountsPath": str(home / "conf")}


def join(cluster: GuardedCluster, home: Path, name: str) -> GuardedCluster:
    """Starts one more broker with users behind the same name server."""
    where = peers.Place(home, cluster.place.namesrv_port, peers.free_port(also=(-2, 1)))
    home.mkdir(parents=True)
    joined = GuardedCluster(peers.OURS, where, pem=cluster.pem)
    encrypted = {} if cluster.pem is None else {"tlsConfigFile": str(cluster.pem / "server.properties")}
    peers.write_configuration(where, {**USERS, **encrypted, "brokerName": name}, {})
    try:
        joined.start_broker()
    except BaseException:
        joined.kill()
        raise
    return joined


def grant(cluster: GuardedCluster, user: str, secret: str, resources: list[str]) -> None:
    """Lets a normal user, who is made if need be, send and consume there."""
    with cluster.admin() as admin:
        at = cluster.broker_addr
        if admin.users.get(at, user) is None:
            admin.users.create(at, user, secret)
        admin.acls.create(at, f"User:{user}", resources, ["Pub", "Sub"], "Allow")
