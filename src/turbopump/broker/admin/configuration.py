"""Shows the configuration (26), and changes the values that can change while the broker runs (25).

Apache sets any field of a running broker and rewrites its file. Here a change that would take no effect is
refused with what to do instead, and a change that does take effect lasts until the broker stops: only the
operator writes the file. A key that names a path, a class or a command is always refused: with Apache's
brokers up to 5.1.0, such keys let anyone run commands on the machine (CVE-2023-33246). So is each key of
access control, which cannot be switched off over the network. A secret is shown as a mask.
"""

import logging
import re
from collections.abc import Callable

from turbopump.broker import settings
from turbopump.broker.config import BrokerConfig, change, show
from turbopump.guard.config import KEYS as ACCESS_KEYS
from turbopump.guard.config import SECRET_KEYS
from turbopump.protocol.bodies import DataVersion
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.conf import ConfigError, pack_properties, parse_properties
from turbopump.protocol.errors import NoPermission, SystemFailure
from turbopump.protocol.headers.admin import GetBrokerConfigResponse
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

NEVER = re.compile("path|home|plugin|provider|command|(?<!sub)script|filterserver|blacklist", re.IGNORECASE)
"""Keys that are always refused, in addition to the operator's own list."""

EXPORTED = {"filterServerNums": "0"}
"""With useTLS, keys without which `exportConfigs` of mqadmin 4.9 fails."""


class ConfigurationHandler:
    """Handles requests to show and change the configuration; calls `apply` with all of it after a change."""

    def __init__(self, config: BrokerConfig, clock: Clock, apply: Callable[[BrokerConfig], None]) -> None:
        self.config = config
        self._clock = clock
        self._apply = apply
        self._version = DataVersion(counter=0, stateVersion=0, timestamp=clock.now_ms())

    def routes(self) -> Routes:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: Route(None, self.update),
            RequestCode.GET_BROKER_CONFIG: Route(None, self.show),
        }

    def show(self, request: Request[None]) -> Answer:
        version = self._version.encode().decode()
        shown = show(self.config)
        exported = EXPORTED | {"useTLS": shown["tlsEnable"]}
        return Answer(GetBrokerConfigResponse(version=version), pack_properties(shown | exported))

    def update(self, request: Request[None]) -> Answer:
        """Changes the keys in the body until the broker stops; raises Refused, changing none, if one is bad.

        Apache ignores an unknown key; here it is refused.
        """
        after = self.config
        unused: list[str] = []
        warnings: list[str] = []
        try:
            for entry in parse_properties(request.body):
                key, text = entry.key, entry.value.strip()
                after = _changed(after, key, text)
                if key in settings.WITHOUT_EFFECT:
                    unused.append(key)
                elif (words := settings.seconds_warning(key, text)) is not None:
                    warnings.append(words)
        except ConfigError as error:
            raise SystemFailure(str(error)) from None
        if after != self.config:
            self._put(after, request)
        for words in warnings:
            log.warning("Configuration changed by %s: %s", request.connection, words)
        if unused:
            names = ", ".join(unused)
            log.warning("Configuration keys without effect, set by %s: %s", request.connection, names)
        return Answer()

    def _put(self, after: BrokerConfig, request: Request[None]) -> None:
        before = show(self.config)
        differences = {key: text for key, text in show(after).items() if text != before[key]}
        log.warning("Configuration changed by %s until the next start: %s", request.connection, differences)
        self.config = after
        self._version = DataVersion(
            counter=self._version.counter + 1, stateVersion=0, timestamp=self._clock.now_ms()
        )
        self._apply(after)


def _changed(config: BrokerConfig, key: str, text: str) -> BrokerConfig:
    if key in ACCESS_KEYS and not NEVER.search(key) and _is_as_before(config, key, text):
        return config
    if NEVER.search(key) or key in config.remote.black_list or key in ACCESS_KEYS:
        raise NoPermission("Can not update config in black list.")
    key = settings.canonical(key)
    row = settings.SETTINGS.get(key)
    if row is None:
        _check_without_field(key, text)
        return config
    after = change(config, key, text)
    if after != config and not row.hot:
        raise SystemFailure(f"{key} cannot change while the broker runs: set it in broker.conf and restart")
    return after


def _is_as_before(config: BrokerConfig, key: str, text: str) -> bool:
    """Returns whether a key of access control has this value already; never said of a secret."""
    try:
        return key not in SECRET_KEYS and change(config, key, text) == config
    except ConfigError:
        return False


def _check_without_field(key: str, text: str) -> None:
    """Raises SystemFailure for an unknown key or unsupported feature; accepts known keys without effect."""
    fixed = settings.FIXED.get(key)
    is_off = fixed is not None and text.lower() in fixed.accepted
    if key in settings.LATER or (fixed is not None and not is_off):
        raise SystemFailure(f"{key}={text} is not supported yet")
    if fixed is None and key not in settings.WITHOUT_EFFECT:
        meant = settings.misspelt(key)
        hint = f"; did you mean {meant}?" if meant else ""
        raise SystemFailure(f"{key} is an unknown key, nothing was changed{hint}")
