"""Configuration files for servers that commands start."""

from collections.abc import Callable

Write = Callable[[str, str], str]
BROKER_CONF = """
brokerName = broker-x
brokerIP1 = 127.0.0.1
bindAddress = 127.0.0.1
listenPort = 0
"""
NAMESRV_CONF = "listenPort = 0\nbindAddress = 127.0.0.1\n"
