"""Shows the statistics of one name and key over the last minute, hour and day (315)."""

from turbopump.broker.metrics.statistics import Figures, Statistics
from turbopump.protocol.bodies import BrokerStatsData, BrokerStatsItem
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.headers.admin import ViewBrokerStatsDataRequest
from turbopump.remoting.router import Answer, Request, Route, Routes


class StatisticsHandler:
    """Handles requests (315) for one statistic of one key over the last minute, hour and day."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def routes(self) -> Routes:
        return {RequestCode.VIEW_BROKER_STATS_DATA: Route(ViewBrokerStatsDataRequest, self.view)}

    async def view(self, request: Request[ViewBrokerStatsDataRequest]) -> Answer:
        await self._statistics.fold()
        name, key = request.header.statsName, request.header.statsKey
        found = self._statistics.view(name, key)
        if found is None:
            raise SystemFailure(f"The stats <{name}> <{key}> not exist")
        minute, hour, day = map(_item, found)
        return Answer(body=BrokerStatsData(statsDay=day, statsHour=hour, statsMinute=minute).encode())


def _item(figures: Figures) -> BrokerStatsItem:
    return BrokerStatsItem(avgpt=figures.avgpt, sum=figures.sum, tps=figures.tps)
