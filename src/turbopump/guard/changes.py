"""Audit lines for changes that tools make: of configuration, topics, groups, offsets, permissions.

In: the handlers of a server. Out: the same handlers; those of `CHANGES` leave a line `changed` when they
succeed, with who asked, from where, and the fields of the request. Changes of users and accounts have lines
of their own (`user_requests.py`). Changes that clients and servers make by themselves all the time, such as
committed offsets, have none.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from turbopump.auth.needs import needs_of
from turbopump.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from turbopump.guard.audit import AuditLog
from turbopump.guard.config import MASK, SECRET_KEYS
from turbopump.guard.link import AccessLink, source_of
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.conf import ConfigError, parse_properties
from turbopump.remoting.router import Answer, Request, Result, Routes

OF_CONFIGURATION = frozenset({Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG})
CHANGES = OF_CONFIGURATION | {
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.UPDATE_AND_CREATE_TOPIC_LIST,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.DELETE_TOPIC_IN_NAMESRV,
    Code.REGISTER_TOPIC_IN_NAMESRV,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Code.DELETE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
    Code.SET_MESSAGE_REQUEST_MODE,
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.CLONE_GROUP_OFFSET,
    Code.PUT_KV_CONFIG,
    Code.DELETE_KV_CONFIG,
    Code.WIPE_WRITE_PERM_OF_BROKER,
    Code.ADD_WRITE_PERM_OF_BROKER,
    Code.TRIGGER_DELETE_FILES,
    Code.DELETE_EXPIRED_COMMITLOG,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC,
    Code.RESUME_CHECK_HALF_MESSAGE,
    Code.SWITCH_TIMER_ENGINE,
    Code.LEDGER_FORGET,
    Code.REPLICA_PROMOTE,
    Code.RAFT_TRANSFER,
    Code.GLOBAL_RESOLVE,
}
"""Requests of tools that change what a server keeps."""

Handler = Callable[[Request[Any]], Result | Awaitable[Result]]

NOT_SHOWN = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
SECRET_WORDS = ("password", "secret")
"""In the name of a configuration key: its value is not shown."""


class ChangeAudit:
    """Puts audit lines around the handlers that change something."""

    def __init__(self, link: AccessLink, audit: AuditLog, cluster: str) -> None:
        self._link = link
        self._audit = audit
        self._cluster = cluster

    def around(self, routes: Routes) -> Routes:
        """Returns handlers that leave a line when they have changed something."""
        return {
            code: replace(route, handler=self._audited(route.handler)) if code in CHANGES else route
            for code, route in routes.items()
        }

    def _audited(self, handler: Handler) -> Handler:
        if inspect.iscoroutinefunction(handler):

            async def audited_later(request: Request[Any]) -> Result:
                name = self._name_of(request)
                result: Result = await handler(request)
                self._note(request, name, result)
                return result

            return audited_later

        def audited(request: Request[Any]) -> Result | Awaitable[Result]:
            name, result = self._name_of(request), handler(request)
            assert result is None or isinstance(result, Command | Answer), "a plain function answers itself"
            self._note(request, name, result)
            return result

        return audited

    def _name_of(self, request: Request[Any]) -> str:
        identity = self._link.name_of(request)
        return "" if identity is None else identity.name

    def _note(self, request: Request[Any], name: str, result: Result) -> None:
        """Notes a change; also one that is answered later, of which only the request is known."""
        if result is None or result.code == ResponseCode.SUCCESS:
            command = request.command
            address = source_of(request.connection).address
            self._audit.changed(name, address, command.code, changed_by(command, self._cluster))


def changed_by(command: Command, cluster: str) -> str:
    """Returns what a request changes: its name, what it needs, its fields; never its body or a secret."""
    name = Code(command.code).name
    if command.code in OF_CONFIGURATION:
        return f"{name}: {_settings(command.body)}"
    hidden = frozenset({"value"}) if command.code == Code.PUT_KV_CONFIG else frozenset()
    fields = [
        f"{key}={MASK if key in hidden or _is_secret(key) else value}"
        for key, value in (command.ext or {}).items()
        if key not in NOT_SHOWN
    ]
    return "; ".join((f"{name}: {', '.join(map(str, needs_of(command, cluster)))}", *fields))


def _settings(body: bytes) -> str:
    try:
        entries = parse_properties(body)
    except ConfigError:
        return "a body that cannot be read"
    return "; ".join(f"{one.key}={MASK if _is_secret(one.key) else one.value.strip()}" for one in entries)


def _is_secret(key: str) -> bool:
    return key in SECRET_KEYS or any(word in key.lower() for word in SECRET_WORDS)
