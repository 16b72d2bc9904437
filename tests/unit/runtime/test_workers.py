import asyncio
import threading

from turbopump.runtime.disk import SystemWorkers


def test_urgent_work_does_not_wait_behind_ordinary_work() -> None:
    async def main() -> None:
        workers = SystemWorkers()
        may_end = threading.Event()
        ordinary = asyncio.create_task(workers.run(may_end.wait, 10))
        assert await workers.urgent(threading.current_thread) is not threading.main_thread()
        assert not ordinary.done()
        may_end.set()
        assert await ordinary
        workers.close()

    asyncio.run(main())
