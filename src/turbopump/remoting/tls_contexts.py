"""TLS contexts of a server, made from PEM files, and made again when the files change.

In: `TlsSettings` and a disk. Out: an `ssl.SSLContext` for accepted connections and one for dialled ones, the
newest that could be made; connections that exist keep theirs. At the start a file that cannot be used raises
`ConfigError`; later the old context stays, with a warning. The key is checked against its certificate by
OpenSSL itself. Certificates are made elsewhere.
"""

import logging
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace

from turbopump.protocol.conf import ConfigError
from turbopump.remoting.certificates import self_signed
from turbopump.remoting.pem import PemFiles, UnusablePem, load_files, load_trust
from turbopump.remoting.tls_ciphers import is_of_tls_13, openssl_name
from turbopump.remoting.tls_settings import TlsSettings, check, with_file
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.runtime.secret_files import exposure

log = logging.getLogger(__name__)

MAX_PEM_BYTES = 4 << 20  # a file of all public authorities has 250 KB
TEST_DAYS = 365
VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsContexts:
    """The contexts of one server for the connections that it accepts and those that it dials.

    `server` and `client` are None where TLS is not used.
    """

    def __init__(self, settings: TlsSettings, disk: Disk) -> None:
        """Reads the files. Raises ConfigError, and names the key whose file or value cannot be used."""
        self.server: ssl.SSLContext | None = None
        self.client: ssl.SSLContext | None = None
        self._disk = disk
        self._self_signed: PemFiles | None = None
        given = settings
        self.settings = settings = self._completed(settings)
        self.warnings = [*check(settings), *self._exposed_files(given)]
        """What the operator should know, for the log."""
        self._sides = list(self._used_sides())
        for side in self._sides:
            try:
                side.use(side.read())
            except UnusablePem as error:
                raise ConfigError(str(error), error.key) from None

    async def watch(self, clock: Clock, workers: Workers | None = None) -> None:
        """Looks at the files again and again; makes a new context when they changed and fit together.

        They are read in `workers`, so that a disk that hangs stops no connection; without, in the event loop.
        """
        while True:
            await clock.sleep(self.settings.reload_ms / 1000)
            for side in self._sides:
                side.take(side.found() if workers is None else await workers.run(side.found))

    def look(self) -> None:
        """Makes a new context of each side whose files have changed; keeps the old one if that fails."""
        for side in self._sides:
            side.take(side.found())

    def to_itself(self) -> ssl.SSLContext | None:
        """Returns a context to dial the server's own ports, which need not be verified.

        None: they ask for a client certificate, and this server has none. Raises ConfigError.
        """
        settings = self.settings
        if settings.need_client_auth == "require" and not settings.client_cert_path:
            return None
        try:
            return self._make_client(self._client_files(), verifies=False)
        except UnusablePem as error:
            raise ConfigError(str(error), error.key) from None

    def _completed(self, settings: TlsSettings) -> TlsSettings:
        """Returns the settings with those of `tlsConfigFile`."""
        if not settings.config_file:
            return settings
        try:
            text = self._disk.read(settings.config_file)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error}", "tlsConfigFile") from None
        try:
            return with_file(settings, text)
        except ConfigError as error:
            place = f"{settings.config_file}, {error.key}" if error.key else settings.config_file
            raise ConfigError(error.message, place, error.line) from None

    def _exposed_files(self, given: TlsSettings) -> Iterator[str]:
        """Yields warnings about files with keys or passwords that other users of the machine can read."""
        settings = self.settings
        paths = []
        if settings.serves and not settings.test_mode:
            paths.append(settings.key_path or settings.cert_path)
        if settings.enabled:
            paths.append(settings.client_key_path or settings.client_cert_path)
        passwords = settings.key_password, settings.client_key_password
        if passwords != (given.key_password, given.client_key_password):
            paths.append(settings.config_file)
        for path in filter(None, dict.fromkeys(paths)):
            if found := exposure(self._disk, path):
                yield f"{path} {found}"

    def _used_sides(self) -> Iterator["_Side"]:
        settings = self.settings
        if settings.serves:
            read = self._self_signed_files if settings.test_mode else self._server_files
            yield _Side("server", read, self._make_server, self._put_server)
        if settings.enabled:
            yield _Side("client", self._client_files, self._make_client, self._put_client)

    def _put_server(self, context: ssl.SSLContext) -> None:
        self.server = context

    def _put_client(self, context: ssl.SSLContext) -> None:
        self.client = context

    # Files

    def _server_files(self) -> PemFiles:
        settings = self.settings
        cert = self._read(settings.cert_path, "tlsServerCertPath")
        key = self._read(settings.key_path, "tlsServerKeyPath")
        needs_trust = settings.need_client_auth != "none"
        trust = self._read(settings.trust_path, "tlsServerTrustCertPath") if needs_trust else b""
        return PemFiles(cert, key, trust)

    def _self_signed_files(self) -> PemFiles:
        """Returns a certificate of the test mode, the same at each call."""
        if self._self_signed is None:
            pair = self_signed(days=TEST_DAYS)
            self._self_signed = PemFiles(pair.cert, pair.key)
        needs_trust = self.settings.need_client_auth != "none"
        trust = self._read(self.settings.trust_path, "tlsServerTrustCertPath") if needs_trust else b""
        return replace(self._self_signed, trust=trust)

    def _client_files(self) -> PemFiles:
        settings = self.settings
        return PemFiles(
            self._read(settings.client_cert_path, "tlsClientCertPath"),
            self._read(settings.client_key_path, "tlsClientKeyPath"),
            self._read(settings.client_trust_path, "tlsClientTrustCertPath"),
        )

    def _read(self, path: str, key: str) -> bytes:
        if not path:
            return b""
        try:
            contents = self._disk.read(path)
        except OSError as error:
            raise UnusablePem(key, f"cannot read {path}: {error.strerror or error}") from None
        if len(contents) > MAX_PEM_BYTES:
            raise UnusablePem(key, f"{path} must have at most {MAX_PEM_BYTES} bytes, got {len(contents)}")
        return contents

    # Contexts

    def _make_server(self, files: PemFiles) -> ssl.SSLContext:
        settings = self.settings
        context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
        names = ("tlsServerCertPath", settings.cert_path, settings.key_path)
        load_files(context, files, settings.key_password, *names)
        if files.trust:
            load_trust(context, files.trust, "tlsServerTrustCertPath", settings.trust_path)
        context.verify_mode = VERIFY[settings.need_client_auth]
        return context

    def _make_client(self, files: PemFiles, verifies: bool = True) -> ssl.SSLContext:
        settings = self.settings
        verifies = verifies and settings.client_auth_server
        context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
        # Brokers are dialled by the addresses under which they register, which no certificate has to name:
        # authorities of one's own vouch for any host, public ones do not.
        context.check_hostname = verifies and not settings.client_trust_path
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        if files.trust:
            load_trust(context, files.trust, "tlsClientTrustCertPath", settings.client_trust_path)
        elif verifies:
            context.load_default_certs()
        if files.cert:
            names = ("tlsClientCertPath", settings.client_cert_path, settings.client_key_path)
            load_files(context, files, settings.client_key_password, *names)
        return context


class _Side:
    """Files and context of one side, and whether the newest files were used."""

    def __init__(
        self,
        name: str,
        read: Callable[[], PemFiles],
        make: Callable[[PemFiles], ssl.SSLContext],
        put: Callable[[ssl.SSLContext], None],
    ) -> None:
        self._name = name
        self.read = read
        self._make = make
        self._put = put
        self._seen: PemFiles | None = None
        self._trouble = ""

    def use(self, files: PemFiles) -> None:
        """Makes the first context; raises UnusablePem."""
        self._put(self._make(files))
        self._seen = files

    def found(self) -> "PemFiles | UnusablePem":
        """Returns what is in the files now, or why they cannot be read."""
        try:
            return self.read()
        except UnusablePem as error:
            return error

    def take(self, found: "PemFiles | UnusablePem") -> None:
        """Makes a new context if the files have changed; keeps the old one, with a warning, if it cannot."""
        try:
            if isinstance(found, UnusablePem):
                raise found
            if found != self._seen:
                self._put(self._make(found))
                self._seen = found
                log.info("Reloaded the TLS files of the %s side", self._name)
            self._trouble = ""
        except UnusablePem as error:
            self._warn(f"{error.key}: {error}")

    def _warn(self, trouble: str) -> None:
        """Logs why the old files stay in use, once for each reason."""
        if trouble != self._trouble:
            log.warning("The old TLS certificate of the %s side stays in use: %s", self._name, trouble)
        self._trouble = trouble


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # A peer that asks for new handshakes again and again makes the server compute more than itself.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    wanted = {VERSIONS[name] for name in settings.protocols} or set(VERSIONS.values())
    if settings.ciphers:
        older = [name for cipher in settings.ciphers if (name := openssl_name(cipher)) is not None]
        if not older:
            wanted -= {ssl.TLSVersion.TLSv1_2}
        else:
            context.set_ciphers(":".join(older))
        if not any(map(is_of_tls_13, settings.ciphers)):
            wanted -= {ssl.TLSVersion.TLSv1_3}
    if not wanted:
        raise UnusablePem("tlsCiphers", f"must have a suite of {', '.join(settings.protocols)}")
    context.minimum_version, context.maximum_version = min(wanted), max(wanted)
    return context
