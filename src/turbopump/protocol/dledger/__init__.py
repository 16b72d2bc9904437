"""DLedger's protocol: what the nodes of a group send one another, and how entries lie on disk.

    codes.py       request codes, codes of answers, results of votes, types of pushes
    messages.py    requests and answers as structs; `decode_request` and `decode_answer` by request code
    answers.py     answers with exactly the fields that Apache's nodes put into them
    entry.py       an entry, as JSON and as bytes; a unit of the index; the mark at the end of a file

Requests travel as commands of the usual protocol with the body as JSON. The command of an answer always has
code 200; the result is the field `code` of its body.
"""
