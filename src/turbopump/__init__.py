"""RocketMQ in Python: name server, broker and tools that speak Apache RocketMQ's protocol and keep its store format."""

__version__ = "0.1.0"
