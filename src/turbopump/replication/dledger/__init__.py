"""The driver of a DLedger node: connects the pure node of `raft` with the wire, the log and the clock.

    server.py           one member of a group: steps of the node, its effects, and what its owner may ask
    group.py            name and members of a group, from `dLegerGroup`, `dLegerSelfId` and `dLegerPeers`
    wire.py             requests and answers of the node to and from DLedger's JSON
    handlers.py         requests of other members: who is addressed, which answer belongs to which request
    peer_link.py        requests to one member, in order, over one connection
    request_encoder.py  makes the commands of those requests; reads the entries of a push
    node_storage.py     what a node wants done on disk: votes, entries, cuts, syncs
    entry_log_view.py   the log as a node sees it
    alarm.py            a timer that is set again and again
    errors.py           why an append was refused
    status.py           the state of a member as a value, for tools

No election rule is here (`raft`), no file format (`store.dledger`), no request of clients (the broker).
"""
