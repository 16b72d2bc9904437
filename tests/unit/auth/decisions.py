"""The table of decisions: what every request needs, and who may send it.

`python -m tests.unit.auth.decisions` prints decisions.txt, which people read: look at each changed line.
"""

from pathlib import Path

from tests.unit.auth.requests_kit import codes, name_of, request_of

from turbopump.auth.access import Access, Identity, Source, UserAccess
from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import read_accounts
from turbopump.auth.book import UserBook
from turbopump.auth.needs import needs_of
from turbopump.auth.signature import Credentials
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission

FILE = Path(__file__).parent / "decisions.txt"
CLUSTER, SOURCE, SECRET = "C", Source("10.0.0.1"), "secret-1"

USERS: dict[str, dict[str, list[str]]] = {
    "none": {},
    "pub": {"Topic:T": ["Pub"]},
    "sub": {"Topic:T": ["Sub"], "Group:G": ["Sub"]},
    "get": {"Topic:T": ["Get"], "Group:G": ["Get"]},
    "edit": {"Topic:T": ["Create", "Update", "Delete"], "Group:G": ["Create", "Update", "Delete"]},
    "cget": {"Cluster:C": ["Get"]},
    "cupd": {"Cluster:C": ["Get", "Update"]},
    "super": {},
}
ACCOUNTS = {
    "accounts": [
        {"accessKey": "none-user", "secretKey": SECRET},
        {"accessKey": "pub-user", "secretKey": SECRET, "topicPerms": ["T=PUB"]},
        {"accessKey": "sub-user", "secretKey": SECRET, "topicPerms": ["T=SUB"], "groupPerms": ["G=SUB"]},
        {"accessKey": "list-admin", "secretKey": SECRET, "admin": True, "topicPerms": ["other=PUB"]},
        {"accessKey": "full-admin", "secretKey": SECRET, "admin": True},
    ]
}
HEAD = """\
# What each request needs that names topic T and group G wherever it can, and who may send it.
# Users of 2.0: none without rights; pub: Pub on T; sub, get, edit: Sub, Get, Create+Update+Delete on T and G;
# cget, cupd: Get, Get+Update on the cluster; a super user. Accounts of 1.0: without rights; T=PUB; T=SUB and
# G=SUB; an administrator with a list; one without. Nobody, without a key, may send none of them.
"""


def users() -> UserAccess:
    book = UserBook()
    for name, entries in USERS.items():
        kind = "Super" if name == "super" else "Normal"
        book = book.created(name, UserInfo(password=SECRET, userType=kind), by_super=True)
        if entries:
            rows = [AclEntry(resource=one, actions=of, decision="Allow") for one, of in entries.items()]
            info = AclInfo(policies=[AclPolicy(entries=rows)])
            book = book.granted(f"User:{name}", info, by_super=True)
    return UserAccess(book)


def accounts() -> AccountAccess:
    return AccountAccess(read_accounts(ACCOUNTS))


def may(access: Access, name: str, request: Command) -> bool:
    """Returns whether the user with this name may send the request."""
    ext = Credentials(name, SECRET).signed(request.ext, request.body) if name else request.ext
    signed = Command(request.code, ext=ext, body=request.body)
    try:
        identity: Identity = access.identify(signed, SOURCE)
        access.authorize(identity, needs_of(signed, CLUSTER), SOURCE, signed.code)
    except NoPermission:
        return False
    return True


def table() -> str:
    of_users, of_accounts = users(), accounts()
    keys = [account["accessKey"] for account in ACCOUNTS["accounts"]]
    heads = [*USERS, *(f"{str(key).split('-')[0]}1" for key in keys)]
    lines = [f"{'code':>6} {'name':42} {' '.join(f'{one:5}' for one in heads)} needs"]
    for code in sorted(codes()):
        request = request_of(code)
        cells = [may(of_users, name, request) for name in USERS]
        cells += [may(of_accounts, str(key), request) for key in keys]
        needs = ", ".join(map(str, needs_of(request, CLUSTER))) or "an identity"
        marks = " ".join(f"{'yes' if cell else '-':5}" for cell in cells)
        lines.append(f"{code:>6} {name_of(code):42} {marks} {needs}")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
