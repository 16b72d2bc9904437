"""PEM files for servers and clients of integration tests."""

from dataclasses import dataclass
from pathlib import Path

from tests.unit.remoting.tls_kit import certificates

from turbopump.remoting.tls_settings import TlsSettings


@dataclass(frozen=True)
class Files:
    """The PEM files of a test."""

    directory: Path

    @classmethod
    def written(cls, directory: Path) -> "Files":
        made = certificates()
        for name, pair in (("server", made.server), ("alice", made.client), ("stranger", made.stranger)):
            (directory / f"{name}.pem").write_bytes(pair.cert + pair.key)
        (directory / "ca.pem").write_bytes(made.root.cert)
        return cls(directory)

    def path(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def servers(self) -> TlsSettings:
        own, ca = self.path("server"), self.path("ca")
        return TlsSettings(
            server_mode="enforcing",
            cert_path=own,
            need_client_auth="require",
            trust_path=ca,
            enabled=True,
            client_cert_path=own,
            client_trust_path=ca,
            http_mode="enforcing",
        )

    def client(self, name: str) -> dict[str, object]:
        own = {"tls_cert_path": self.path(name), "tls_key_path": self.path(name)} if name else {}
        return {"use_tls": True, "tls_trust_cert_path": self.path("ca"), **own}
