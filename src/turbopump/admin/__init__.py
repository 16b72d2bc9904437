"""`mqadmin`: Apache's command line over `turbopump.client.admin`.

`commands.py` is the table of all commands; each area has a module with a function per command. A function
asks the cluster through `Admin` and shows what it found through `Output`; it knows neither sockets nor codes.
"""
