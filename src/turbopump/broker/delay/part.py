"""Builds the part for delayed messages: delay levels, and timers with a delivery time of their own."""

from dataclasses import dataclass

from turbopump.broker.delay.level_records import DelaySchedule
from turbopump.broker.delay.levels import FILE as LEVEL_FILE
from turbopump.broker.delay.levels import DelayedMessages
from turbopump.broker.delay.timer_intake import RecallHandler, TimerIntake
from turbopump.broker.delay.timers import FILE as TIMER_FILE
from turbopump.broker.delay.timers import TimedMessages
from turbopump.broker.part import Context, Part
from turbopump.broker.tables import load
from turbopump.protocol.permissions import WRITE


@dataclass(kw_only=True)
class DelayPart(Part):
    """The part for delayed messages, with the objects of it that other parts use."""

    schedule: DelaySchedule
    intake: TimerIntake
    levels: DelayedMessages
    timers: TimedMessages


async def build(context: Context) -> DelayPart:
    """Builds the handlers, message kinds and background tasks of delay levels and timers.

    Waiting messages are known before clients are served; retention keeps their files.
    """
    config, store = context.config(), context.store
    schedule = DelaySchedule(store)
    levels = DelayedMessages(
        store, context.tables.topics, context.writer, context.files.save, context.workers, context.clock
    )
    load(context.files, LEVEL_FILE, levels.load)
    levels.open()
    schedule.on_postponed = levels.postponed

    rules, name = config.timers, context.broker_name
    intake = TimerIntake(store, lambda: context.config().timers, name, context.clock, rules.precision_ms)
    timers = TimedMessages(
        store,
        context.tables.topics,
        context.writer,
        context.files.save,
        context.workers,
        context.clock,
        context.disk,
        rules,
    )
    load(context.files, TIMER_FILE, timers.load)
    timers.open()
    recalls = RecallHandler(
        context.tables.topics,
        intake,
        context.writer,
        rules=lambda: context.config().timers,
        writable=lambda: context.may(WRITE),
        clock=context.clock,
        broker=name,
        region=config.sending.region_id,
    )
    part = DelayPart(
        routes={**levels.routes(), **timers.routes(), **recalls.routes()},
        kinds=(schedule, intake),
        schedule=schedule,
        intake=intake,
        levels=levels,
        timers=timers,
    )
    if context.is_slave:  # the master delivers; its progress is copied with its tables
        return part
    store.retention.guards.append(levels.rescue)
    part.tasks = [levels.run, lambda: levels.keep(config.delays.flush_interval_ms / 1000)]
    part.close = [levels.close]
    if rules.enabled:
        intake.on_postponed = timers.postponed
        store.retention.guards.append(timers.rescue)
        part.tasks = [*part.tasks, timers.run, lambda: timers.keep(rules.flush_interval_ms / 1000)]
        part.close = [*part.close, timers.close]
    return part
