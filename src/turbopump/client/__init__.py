"""The RocketMQ client: producers, consumers and administration over one asyncio core.

`produce/` sends, `pull/` and `push/` consume, `group/` is membership in a consumer group, `observe/` has
hooks, telemetry and message trace, `admin/` is administration, and `blocking/` has the generated blocking
classes. The modules here are what all of them share: connections, routes, heartbeats, messages, settings and
errors.

What never belongs here: code of a broker or a name server. The client knows them only by their answers on the
wire, so it works the same with Apache's servers.
"""
