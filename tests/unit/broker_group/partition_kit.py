"""Cuts members of a group off."""

from tests.unit.broker_group.kit import Group
from tests.unit.replication.kit import Node


def cut_off(world: Group, leader: Node, *more: str) -> None:
    """Nothing passes between the leader and its followers, nor the hosts that are named."""
    for ip in [node.ip for node in world.nodes if node is not leader] + list(more):
        world.network.cut(leader.ip, ip)


def join(world: Group, leader: Node, *more: str) -> None:
    for ip in [node.ip for node in world.nodes if node is not leader] + list(more):
        world.network.join(leader.ip, ip)
