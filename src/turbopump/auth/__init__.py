"""Access control as values: who signed a request, what it needs, and whether that is allowed.

Pure: no file, socket or clock, and no secret in a text. The link that guards a server's router, the files of
users and the requests that change them are above, in the packages that have disk and network.
"""
