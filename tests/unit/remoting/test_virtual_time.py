import asyncio
import time

import pytest

from turbopump.testing.loop import START_MS, Stuck, VirtualClock, run_virtual


def test_a_day_passes_in_no_time_and_to_the_millisecond() -> None:
    async def main() -> tuple[float, int]:
        clock = VirtualClock()
        await clock.sleep(86_400.001)
        return clock.monotonic(), clock.now_ms()

    started = time.monotonic()
    elapsed, now_ms = run_virtual(main())
    assert elapsed == pytest.approx(86_400.001)
    assert now_ms == START_MS + 86_400_001
    assert time.monotonic() - started < 2


def test_timers_fire_in_order_and_time_stands_still_in_between() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[str, float]] = []

        async def after(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            fired.append((name, loop.time()))
            time.sleep(0.001)  # noqa: ASYNC251 - real time does not count

        await asyncio.gather(after(5, "b"), after(1, "a"), after(100, "c"))
        return fired

    assert run_virtual(main()) == [("a", 1.0), ("b", 5.0), ("c", 100.0)]


def test_a_thread_brings_its_result_back() -> None:
    async def main() -> str:
        return await asyncio.get_running_loop().run_in_executor(None, lambda: "done")

    assert run_virtual(main()) == "done"


def test_waiting_for_what_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.testing.loop.STUCK_S", 0.01)

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck):
        run_virtual(main())
