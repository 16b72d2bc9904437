"""Messages as short lines of text."""

from turbopump.raft.messages import (
    Heartbeat,
    HeartbeatAnswer,
    OutgoingRequest,
    PeerAnswer,
    PushAnswer,
    PushKind,
    PushOrder,
    TransferAnswer,
    TransferRequest,
    VoteAnswer,
    VoteRequest,
)


def request_words(request: OutgoingRequest) -> str:
    """A request as text."""
    match request:
        case VoteRequest(term, end_index, end_term):
            return f"vote? t{term}, log ends {end_index} t{end_term}"
        case Heartbeat(term):
            return f"heartbeat t{term}"
        case PushOrder(kind, term, first, last, commit):
            span = "" if kind is PushKind.COMMIT else f" {first}" if first == last else f" {first}-{last}"
            return f"{kind}{span} t{term}, commit {commit}"
        case TransferRequest(term, _, to_member, take_index):
            return f"lead, {to_member}! t{term}, from {take_index}"


def answer_words(answer: PeerAnswer) -> str:
    """An answer as text."""
    match answer:
        case VoteAnswer(term, result):
            return f"vote {result} t{term}"
        case HeartbeatAnswer(code, term):
            return f"heartbeat {code}" + (f" t{term}" if term >= 0 else "")
        case PushAnswer(code, _, index, count, begin, end):
            span = "commit" if count == 0 else f"{index}" if count == 1 else f"{index}-{index + count - 1}"
            return f"push {span} {code}, log {begin} to {end}"
        case TransferAnswer(code, term):
            return f"transfer {code} t{term}"
