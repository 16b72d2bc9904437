"""FastAPI: clients live as long as the application does. Name servers come from NAMESRV_ADDR."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from turbopump import errors
from turbopump.aio import ConsumeFromWhere, Consumer, Message, Producer


class Order(BaseModel):
    id: str
    cents: int


producer = Producer("shop")
consumer = Consumer("shop-billing", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
billed: dict[str, int] = {}


@consumer.on("FastapiOrders")
async def bill(order: Order) -> None:
    billed[order.id] = order.cents


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with (
        producer,
        consumer,
    ):  # on the way out: sends are awaited, handlers finish, offsets are committed
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    try:
        receipt = await producer.send(Message.json("FastapiOrders", order, keys=order.id), by=order.id)
    except errors.SendFailed as failure:
        raise HTTPException(503, str(failure)) from failure
    return {"message": receipt.message_id}


@app.get("/orders/{id}")
async def look(id: str) -> dict[str, int]:
    if id not in billed:
        raise HTTPException(404)
    return {"cents": billed[id]}
