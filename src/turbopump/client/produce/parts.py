"""The parts of a running producer: made from its settings when it starts, closed in order when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.client.instance import ClientInstance
from turbopump.client.observe.hooks import SendHook
from turbopump.client.observe.trace_hooks import SendTraceHook
from turbopump.client.observe.trace_sender import TraceSender
from turbopump.client.produce.broker_health import BrokerHealth, HealthyQueueSelector, broker_health
from turbopump.client.produce.broker_probe import BrokerProbe
from turbopump.client.produce.membership import ProducerMembership
from turbopump.client.produce.moved_masters import MovedMasters
from turbopump.client.produce.sender import QueueSelector, Sender
from turbopump.client.produce.transaction import CheckResponder
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import ProducerSettings


@dataclass(frozen=True, slots=True)
class ProducerParts:
    """The parts of a running producer: the sender and, if the settings say so, trace sender and probe."""

    sender: Sender
    trace_sender: TraceSender | None = None
    probe: BrokerProbe | None = None
    moved: MovedMasters | None = None

    async def close(self) -> None:
        await self.sender.close()
        if self.moved is not None:
            await self.moved.close()
        if self.probe is not None:
            await self.probe.close()
        if self.trace_sender is not None:
            await self.trace_sender.close()


async def start_parts(
    group: str,
    settings: ProducerSettings,
    instance: ClientInstance,
    membership: ProducerMembership,
    hooks: Sequence[SendHook],
    responder: CheckResponder,
) -> ProducerParts:
    """Makes, starts and returns the parts of a producer that has joined `instance`."""
    world = instance.world
    selector: QueueSelector = RoundRobin(world.chance)
    health: BrokerHealth | None = None
    if settings.send_latency_fault_enable:
        health = broker_health(settings)
        selector = HealthyQueueSelector(health, RoundRobin(world.chance), world.clock.monotonic)
    trace_sender: TraceSender | None = None
    if settings.enable_trace:
        trace_sender = TraceSender(instance, settings, group, "PRODUCE")
        await trace_sender.start()
        hooks = (*hooks, SendTraceHook(trace_sender))
        responder.on_answered = trace_sender.transaction_checked
    sender = Sender(
        calls=instance.client,
        routes=instance.routes,
        clock=world.clock,
        unique_ids=instance.unique_ids,
        selector=selector,
        group=membership.group,
        settings=settings,
        hooks=hooks,
        health=health,
        chance=world.chance,
    )
    probe: BrokerProbe | None = None
    if health is not None and health.is_probed:
        probe = BrokerProbe(
            health,
            instance.client,
            instance.routes,
            world.clock,
            membership.topics,
            settings.detect_timeout,
            settings.detect_interval,
        )
        probe.start()
    moved = MovedMasters(instance.client, instance.routes, world.clock, settings.vip_channel_enabled)
    sender.watch = moved
    return ProducerParts(sender, trace_sender, probe, moved)
