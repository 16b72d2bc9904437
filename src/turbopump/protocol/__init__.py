"""Apache RocketMQ's wire protocol: converts between bytes and frames, commands, headers, bodies and records.

In: bytes of a peer or of a store file. Out: msgspec structs, or an exception of `errors`. Never here: await,
a clock, files, sockets, or anything specific to a role (name server, broker, client).
"""
