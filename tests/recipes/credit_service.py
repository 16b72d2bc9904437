"""A service that takes part in transactions of others by HTTP: 200 is done, 409 a no, 425 ask again.

The headers gid, branch and phase name the call; the fence gives a repeated one the answer of the first.
"""

import os
import sqlite3
from contextlib import closing
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

from turbopump.transactions.errors import Declined
from turbopump.transactions.fence import fenced, is_retriable


class Transfer(BaseModel):
    id: str
    cents: int


WORK = {
    "try": "UPDATE accounts SET expected = expected + :cents WHERE id = 'B'",
    "confirm": "UPDATE accounts SET expected = expected - :cents, cents = cents + :cents WHERE id = 'B'",
    "cancel": "UPDATE accounts SET expected = expected - :cents WHERE id = 'B'",
}

app = FastAPI()


def connect() -> sqlite3.Connection:
    return sqlite3.connect(os.environ["CREDIT_DB"], timeout=20, check_same_thread=False)


@app.post("/credit")
def credit(
    order: Transfer,
    gid: Annotated[str, Header()],
    branch: Annotated[str, Header()],
    phase: Annotated[str, Header()],
) -> dict[str, str]:
    try:
        with closing(connect()) as connection, fenced(connection, gid, branch, phase) as call:
            if call.is_first:
                connection.execute(WORK[phase], {"cents": order.cents})
    except Declined as no:
        raise HTTPException(409, str(no)) from no
    except Exception as error:
        if is_retriable(error):
            raise HTTPException(425, str(error)) from error
        raise
    return {"gid": gid}
