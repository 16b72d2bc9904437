"""RocketMQ in Python: name server, broker and tools with Apache RocketMQ's own protocol and store format."""

__version__ = "0.1.0"
