"""Bytes to values and back: frames, commands, headers, bodies and records of Apache RocketMQ's remoting
protocol.

Comes in: bytes of a peer or of a store file. Goes out: msgspec structs, or one of the exceptions in `errors`.
Never here: await, a clock, files, sockets, or anything that knows a role (name server, broker, client).
"""
