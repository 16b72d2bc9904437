"""Options of the sink: Spark's strings in, one value out, which is sent to every task.

Delivery is exactly-once for streams and at-least-once for batches, unless it is given: decision 0014 says
why. No broker is contacted here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from turbopump.client.errors import InvalidArgument
from turbopump.client.options import ClientOptions
from turbopump.client.rules import check_target
from turbopump.pipelines.credentials import CREDENTIALS, found_credentials
from turbopump.pipelines.options import (
    BadOption,
    FormatOption,
    FormatOptions,
    choice,
    count,
    flag,
    servers,
    text,
    version_of,
)
from turbopump.pipelines.schema import COLUMNS
from turbopump.pipelines.sink.columns import LOWER, check_columns
from turbopump.pipelines.tables import hint

FORMAT = "rocketmq"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"


def topic(given: str) -> str:
    try:
        check_target(given.strip())
    except InvalidArgument as error:
        raise ValueError(str(error)) from None
    return given.strip()


SINK = (
    FormatOption(
        "nameServer",
        servers,
        aliases=("rocketmq.namesrv.addr", "nameServers", "namesrvAddr"),
        help="`host:port` of the name servers, separated by `;`. Required",
    ),
    FormatOption(
        "topic", topic, help="topic of all rows; without it the column `topic` names it for each row"
    ),
    FormatOption(
        "delivery",
        choice(EXACTLY_ONCE, AT_LEAST_ONCE),
        help="`exactly-once` (default of streams) or `at-least-once` (default of batches); the first needs "
        "Turbopump's brokers",
    ),
    FormatOption(
        "transactionalId",
        text,
        help="id under which brokers record exactly-once batches; default: the id of the query, from its "
        "checkpoint",
    ),
    FormatOption(
        "txnVersion",
        count(0),
        help="number of this batch under the transactionalId, such as the batch id of foreachBatch; a number "
        "that was written already is not written again. Without it an id writes one batch",
    ),
    FormatOption(
        "cluster", text, "", help="cluster of the brokers, if the name servers know several (exactly-once)"
    ),
    FormatOption("sendTimeoutMs", count(), 60_000, help="how long to wait for unavailable brokers"),
    FormatOption("namespace", text, "", help="namespace of the topics"),
    FormatOption("useTls", flag, False, help="connect to all servers by TLS"),
    FormatOption("tlsTrustCertPath", text, "", help="PEM file with the certificate authorities"),
    FormatOption("tlsCertPath", text, "", help="PEM file with the client's certificate"),
    FormatOption("tlsKeyPath", text, "", help="PEM file with the key of the client's certificate"),
    FormatOption("tlsKeyPassword", text, "", help="password of the key", is_secret=True),
    *CREDENTIALS,
)
ASSIGNED = {column.name.lower() for column in COLUMNS} - LOWER.keys()
CLIENT = {
    "namespace": "namespace",
    "useTls": "use_tls",
    "tlsTrustCertPath": "tls_trust_cert_path",
    "tlsCertPath": "tls_cert_path",
    "tlsKeyPath": "tls_key_path",
    "tlsKeyPassword": "tls_key_password",
}
"""Option → setting of the client."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options for writing to topics. Sent to tasks by pickle."""

    name_servers: tuple[str, ...]
    topic: str | None
    delivery: str
    transactional_id: str | None
    cluster: str
    patience_s: float
    client: tuple[tuple[str, Any], ...] = field(repr=False)
    """Settings of the client, among them its secrets."""
    version: int | None = None
    """Number of a batch; None: the transactional id writes one batch."""
    assigned: tuple[str, ...] = ()
    """Columns that brokers fill: null in every row."""

    @property
    def client_options(self) -> ClientOptions:
        return cast(ClientOptions, dict(self.client))


def sink_of(
    given: Mapping[str, str],
    columns: Sequence[tuple[str, str]],
    overwrite: bool,
    default: str,
    *,
    is_table: bool = False,
) -> SinkOptions:
    """Checks options and columns for writing to topics, and returns the options. Raises BadOption, BadColumn.

    `columns`: names and types of the rows, in Spark's terms. `is_table`: rows have all columns of a table
    that can be read too; those that brokers assign must be null.
    """
    if overwrite:
        raise BadOption("messages can only be appended to a topic: use mode('append')")
    options = FormatOptions(SINK, given, FORMAT)
    servers = options.need("nameServer", f"host:port, such as 127.0.0.1:9876. In SQL: {hint('nameServer')}")
    delivery = options["delivery"] or default
    if delivery == AT_LEAST_ONCE and options.is_given("transactionalId"):
        raise BadOption("option transactionalId is for delivery=exactly-once: remove one of the two")
    assigned = tuple(name for name, _ in columns if is_table and name.lower() in ASSIGNED)
    written = [one for one in columns if one[0] not in assigned]
    check_columns(written, has_topic=options.is_given("topic"))
    client = tuple((name, options[option]) for option, name in CLIENT.items() if options.is_given(option))
    return SinkOptions(
        name_servers=servers,
        topic=options["topic"],
        delivery=delivery,
        transactional_id=options["transactionalId"],
        cluster=options["cluster"],
        patience_s=options["sendTimeoutMs"] / 1000,
        client=(*client, *found_credentials(options)),
        version=version_of(options),
        assigned=assigned,
    )
