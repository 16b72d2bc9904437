"""A plain script: takes from an account here, and gives to one in a service that is asked by HTTP.

Name servers come from NAMESRV_ADDR, the service's address from CREDIT_URL.
"""

import os
import sqlite3
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass

import msgspec

from turbopump.transactions import BranchCall, Coordinator, Declined, Later, Tcc


@dataclass(frozen=True)
class Transfer:
    id: str
    cents: int


def connect() -> sqlite3.Connection:
    return sqlite3.connect(os.environ["DEBIT_DB"], timeout=20)


debit = Tcc[Transfer]("debit", connect=connect)
credit = Tcc[Transfer]("credit")  # no connection: its functions get the call itself


@debit.try_
def freeze(connection: sqlite3.Connection, order: Transfer) -> None:
    taken = connection.execute(
        "UPDATE accounts SET cents = cents - :cents, frozen = frozen + :cents WHERE cents >= :cents",
        {"cents": order.cents},
    )
    if taken.rowcount != 1:
        raise Declined("too little money")


@debit.confirm
def take(connection: sqlite3.Connection, order: Transfer) -> None:
    connection.execute("UPDATE accounts SET frozen = frozen - ?", (order.cents,))


@debit.cancel
def release(connection: sqlite3.Connection, order: Transfer) -> None:
    sql = "UPDATE accounts SET cents = cents + :cents, frozen = frozen - :cents"
    connection.execute(sql, {"cents": order.cents})


@credit.try_
@credit.confirm
@credit.cancel
def ask(call: BranchCall, order: Transfer) -> None:
    headers = {
        "content-type": "application/json",
        "gid": call.gid,
        "branch": call.branch,
        "phase": call.phase,
    }
    request = urllib.request.Request(os.environ["CREDIT_URL"], msgspec.json.encode(order), headers)
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except urllib.error.HTTPError as answer:
        if answer.code == 409:
            raise Declined(answer.read().decode()) from answer
        if answer.code == 425:
            raise Later(answer.read().decode()) from answer
        raise  # anything else may have been done or not: it is asked again


if __name__ == "__main__":
    with Coordinator("bank", participants=[debit, credit]) as bank:
        order = Transfer(sys.argv[1], int(sys.argv[2]))
        try:
            with bank.tcc() as t:
                t.call(debit, order)
                t.call(credit, order)
            print(f"{order.id}: committed")
        except Declined as no:
            print(f"{order.id}: {no}")
