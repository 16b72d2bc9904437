"""A planning world: how name servers, brokers and clients of a large cluster load one another.

python -m tests.simulation.scale                              100 brokers, 10,000 topics, 5,000 clients
python -m tests.simulation.scale --brokers 20 --clients 800   a cluster of one's own
python -m tests.simulation.scale.process                      a real name server process under the same load
python -m tests.simulation.scale.page                         writes the tables of docs/scale.md

Real are the name servers as a whole, the brokers' topic tables and registration, and the clients' instances
with their polling of routes. The brokers have no store; the clients send and consume nothing. Network and
time are virtual: each figure of traffic and time is counted, and a busy machine does not change it.
"""
