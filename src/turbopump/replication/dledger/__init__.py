"""The driver of a DLedger node: connects the pure node of `raft` with the wire, the log and the clock.

    server.py           one member of a group: its parts, its life, and what its owner may ask
    node_runner.py      events in their order, one step of the node at a time; starts it again from disk
    event_queue.py      what has happened and the node has not taken in
    effects.py          what the node wants done: on disk, on the wire, to the owner
    commit_waits.py     appends of the owner that wait for their commit, or their deadline
    transfers.py        transfers of the leadership that the owner waits for
    group.py            name and members of a group, from `dLegerGroup`, `dLegerSelfId` and `dLegerPeers`
    timings.py          intervals of a member as a value: DLedger's, and faster ones
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
