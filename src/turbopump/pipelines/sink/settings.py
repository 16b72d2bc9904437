"""Options of the sink: Spark's strings in, one value out that goes with every task.

The delivery is exactly-once for streams and at-least-once for batches, unless it is given: decision 0014 says
why. Nothing is asked of a broker here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from turbopump.client.errors import InvalidArgument
from turbopump.client.options import ClientOptions
from turbopump.client.rules import check_target
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
        help="`host:port` of the name servers, with `;` between. Needed",
    ),
    FormatOption("topic", topic, help="where all rows go; without it the column topic says so for each"),
    FormatOption(
        "delivery",
        choice(EXACTLY_ONCE, AT_LEAST_ONCE),
        help="exactly-once (streams) or at-least-once (batches); the first needs Turbopump's brokers",
    ),
    FormatOption(
        "transactionalId",
        text,
        help="under which exactly-once is kept at the brokers; the id of the query, which its checkpoint has",
    ),
    FormatOption(
        "txnVersion",
        count(0),
        help="number of this batch under the transactionalId, such as the batch id of foreachBatch; one that "
        "was written already is not written again. Without it an id writes one batch",
    ),
    FormatOption("cluster", text, "", help="of the brokers, where name servers know several (exactly-once)"),
    FormatOption("sendTimeoutMs", count(), 60_000, help="how long brokers that are away are waited for"),
    FormatOption("namespace", text, "", help="of topics"),
    FormatOption("useTls", flag, False, help="connections to servers are encrypted"),
    FormatOption("tlsTrustCertPath", text, "", help="certificates of who may have signed those of servers"),
    FormatOption("tlsCertPath", text, "", help="our certificate"),
    FormatOption("tlsKeyPath", text, "", help="its key"),
    FormatOption("tlsKeyPassword", text, "", help="of the key"),
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
    """What is asked of the sink. Goes to tasks by pickle."""

    name_servers: tuple[str, ...]
    topic: str | None
    delivery: str
    transactional_id: str | None
    cluster: str
    patience_s: float
    client: tuple[tuple[str, Any], ...]
    version: int | None = None
    """Of a batch; None: the transactional id writes one batch."""
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
    """`columns`: names and types of the rows, in Spark's words. `is_table`: rows have all columns of a table
    that can be read too; those that brokers assign must be null. Raises BadOption and BadColumn.
    """
    if overwrite:
        raise BadOption("messages can be appended to a topic, not put in place of others: mode('append')")
    options = FormatOptions(SINK, given, FORMAT)
    servers = options.need("nameServer", f"host:port, such as 127.0.0.1:9876. In SQL: {hint('nameServer')}")
    delivery = options["delivery"] or default
    if delivery == AT_LEAST_ONCE and options.is_given("transactionalId"):
        raise BadOption("option transactionalId is for delivery=exactly-once: drop one of the two")
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
        client=client,
        version=version_of(options),
        assigned=assigned,
    )
