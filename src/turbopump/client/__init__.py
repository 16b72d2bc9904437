"""The client: routes, sending and pulling over one asyncio core.

What is never here: a broker or a name server. The client knows them by their wire answers only, so it works
the same against Apache's servers.
"""
