"""The table of all commands, by area."""

from turbopump.admin import cluster, topic
from turbopump.admin.command import Command

AREAS: dict[str, tuple[Command, ...]] = {
    "topic": topic.COMMANDS,
    "cluster": cluster.COMMANDS,
}

BY_NAME: dict[str, Command] = {
    name.lower(): command
    for commands in AREAS.values()
    for command in commands
    for name in (command.name, *command.aliases)
}
