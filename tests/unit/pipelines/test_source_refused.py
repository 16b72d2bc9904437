"""A topic that a Spark source may not read fails the query at every question about it: no row is left out."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit import virtual

from turbopump.pipelines.source.broker_client import BrokerClient
from turbopump.pipelines.source.settings import ClusterAccess
from turbopump.protocol.errors import AccessRefused, refusal

DENIED = refusal(16, "User:u has no permission to access Topic:T from 10.0.0.1, no matched policies.")


async def refuse(*arguments: Any, **more: Any) -> Any:
    raise DENIED


class Refusing:
    """Refuses every question, whatever it is."""

    def __getattr__(self, name: str) -> Any:
        return refuse


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> BrokerClient:
    found = BrokerClient(ClusterAccess("10.0.0.9:9876"))
    admin = SimpleNamespace(topics=Refusing(), asking=Refusing(), clusters=Refusing())
    monkeypatch.setattr(found, "_admin", admin)
    monkeypatch.setattr(found, "routes", Refusing())
    monkeypatch.setattr(found, "pulls", Refusing())
    return found


@pytest.mark.parametrize(
    "ask",
    [
        lambda brokers: brokers._route("T"),
        lambda brokers: brokers._ends_at("T", "10.0.0.1:10911"),
        lambda brokers: brokers._trace("10.0.0.9:9876", "T"),
        lambda brokers: brokers._routed("10.0.0.9:9876", "T"),
        lambda brokers: brokers.snapshot(SimpleNamespace(pattern=None, names=lambda: ["T"])),
    ],
    ids=["route", "ends", "absent brokers", "known routes", "snapshot"],
)
@virtual
async def test_a_refusal_is_raised_and_not_taken_for_an_empty_topic(ask: Any, brokers: BrokerClient) -> None:
    with pytest.raises(AccessRefused, match="no matched policies"):
        await ask(brokers)
