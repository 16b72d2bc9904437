"""`mqadmin`: Apache's command line over `turbopump.client.admin`.

`commands.py` is the table of all commands; each area has a module with a function per command. A function
queries the cluster through `Admin` and prints through `Output`; sockets and request codes do not belong here.
"""
