import pytest

from turbopump.cli import health
from turbopump.protocol.bodies import KVTable
from turbopump.protocol.command import Command


def of(code: int = 0, **figures: str) -> health.Health:
    table = {"brokerVersionDesc": "V5_5_0", **figures}
    return health.of_broker("10.0.0.5:10911", Command(code, body=KVTable(table=table).encode()))


def test_a_broker_that_takes_no_messages_is_ill_and_the_line_says_why() -> None:
    found = of(brokerActive="false", storeTrouble="the broker's disk is full")
    assert found.line() == "FAIL 10.0.0.5:10911 broker V5_5_0 accepts no messages: the broker's disk is full"


@pytest.mark.parametrize("figures", [{}, {"brokerActive": "true"}, {"brokerActive": "false"}])
def test_others_are_well_also_apaches_slaves_and_old_brokers(figures: dict[str, str]) -> None:
    assert of(**figures).line() == "ok   10.0.0.5:10911 broker V5_5_0"


def test_the_exit_status_follows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def found(options: object) -> list[health.Health]:
        return [of(), of(storeTrouble="no room")]

    monkeypatch.setattr(health, "_examine", found)
    assert health.run(None) == 1  # type: ignore[arg-type]
    assert "no room" in capsys.readouterr().out
