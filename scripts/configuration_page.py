"""Writes docs/configuration.md from the tables that the broker itself uses.

Run `python scripts/configuration_page.py` after a change of the tables. A unit test fails when the page is
not current.
"""

from pathlib import Path

from turbopump.broker import settings
from turbopump.broker.config import BrokerConfig, get, paths

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration of the broker

<!-- Written by scripts/configuration_page.py; change the tables in src/turbopump/broker, not this page. -->

`mqbroker -c broker.conf` reads Apache's file, a Java `.properties` text with Apache's keys. Each key can
also be set by an environment variable, and a few by command-line flags; later ones win:

    default < broker.conf < environment < flags

The variable of a key is the key in upper case with the prefix `TURBOPUMP_`: `flushDiskType` is
`TURBOPUMP_FLUSH_DISK_TYPE`. `NAMESRV_ADDR` sets `namesrvAddr`, as with Apache's tools. `mqbroker -p` prints
all values in use, `mqbroker -m` the important ones.

An invalid value stops the start with its line, its key and the accepted values. So does a misspelt key: an
unknown one that is very similar to one of those below. Any other unknown key is named in a warning and
ignored.
"""

EFFECTIVE = """
## Keys with an effect

| key | default | accepted | what it does |
|---|---|---|---|
"""

HOT = """
While the broker runs, `mqadmin updateBrokerConfig` can change {keys}. Such a change takes effect at once and
lasts until the broker stops: it is not written to `broker.conf`, which belongs to the operator. Other keys
are refused: change the file and restart. Keys on `configBlackList`, and all that name a path, a class or a
command, are refused with NO_PERMISSION whatever their value.
"""

OURS = """
## Fields without a key of Apache's

| field | default | what it does |
|---|---|---|
"""

FIXED = """
## Accepted at one value only

These keys belong to features that do not exist yet and whose silent absence would change what an
acknowledgement means, the role of the broker or who may connect. Any other value stops the start.

| key | accepted value | missing feature |
|---|---|---|
"""

LATER = """
## Keys of later features

Named in a warning at the start, without effect.

| feature | keys |
|---|---|
"""

WITHOUT_EFFECT = """
## Accepted, without effect

These keys tune threads, queues between threads, locks, buffers and RocksDB; this broker is one event loop and
has none of these. One line at the start names them.

"""

NAME_SERVER = """
## Name server

`mqnamesrv -c FILE` reads Apache's keys of name servers; `mqnamesrv -p` prints them all. The keys of
[TLS](tls.md) and of [access control](security.md) above are the same. These are its own:

| key | default | what it does |
|---|---|---|
"""

NAME_SERVER_KEYS = {
    "httpPort": (
        "`-1`",
        "port of `GET /health` and `GET /rocketmq/nsaddr`; 0: any free port, -1: off; also `--http-port`",
    ),
    "namesrvAddr": (
        "",
        "every name server as host:port, separated by ; for clients that ask at `/rocketmq/nsaddr`, or, as "
        "clients of a unit, at `/rocketmq/nsaddr-UNIT`. Empty: this one, at `bindAddress` or the "
        "primary local address; also `-n`",
    ),
    "proxyProtocolFrom": (
        "",
        "proxies on whose word the address of a client is believed, by the PROXY protocol (1 and 2): IP "
        "addresses or networks, but not all, separated by ;",
    ),
    "nameServerReads": (
        "`open`",
        "with access control on: `open` lets everybody read routes, `signed` only known users",
    ),
    "clusterName": (
        "`DefaultCluster`",
        "the cluster that policies name for this server: `Cluster:DefaultCluster`",
    ),
}


def page() -> str:
    config = BrokerConfig()
    whys = dict(paths(config))
    return "".join(
        [
            HEAD,
            EFFECTIVE,
            *(_row(*row) for row in _effective(config, whys)),
            HOT.format(keys=_keys(key for key, row in settings.SETTINGS.items() if row.hot)),
            OURS,
            *(_row(f"`{path}`", f"`{default}`", why) for path, default, why in _without_key(config, whys)),
            FIXED,
            *(
                _row(f"`{key}`", " ".join(f"`{text or '(empty)'}`" for text in fixed.accepted), fixed.feature)
                for key, fixed in sorted(settings.FIXED.items())
            ),
            LATER,
            *(_row(feature, _keys(keys)) for feature, keys in _by_feature().items()),
            WITHOUT_EFFECT,
            _keys(sorted(settings.WITHOUT_EFFECT)),
            "\n",
            NAME_SERVER,
            *(_row(f"`{key}`", *cells) for key, cells in NAME_SERVER_KEYS.items()),
        ]
    )


def _effective(config: BrokerConfig, whys: dict[str, str]) -> list[tuple[str, ...]]:
    rows = []
    for key, row in sorted(settings.SETTINGS.items()):
        default = "~/store" if row.path == settings.ROOT_DIR_PATH else row.reader.show(get(config, row.path))
        rows.append(
            (f"`{key}`", f"`{default}`" if default else "", row.reader.accepts, row.why or whys[row.path])
        )
    return rows


def _without_key(config: BrokerConfig, whys: dict[str, str]) -> list[tuple[str, object, str]]:
    """Fields of the broker's own parts; those of the store are bounds that need not be set."""
    keyed = {row.path for row in settings.SETTINGS.values()}
    return [
        (path, get(config, path), why)
        for path, why in whys.items()
        if path not in keyed and not path.startswith("store.")
    ]


def _by_feature() -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for key, feature in settings.LATER.items():
        grouped.setdefault(feature, []).append(key)
    return grouped


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _keys(keys: object) -> str:
    return ", ".join(f"`{key}`" for key in keys)  # type: ignore[attr-defined]


if __name__ == "__main__":
    PAGE.write_text(page())
