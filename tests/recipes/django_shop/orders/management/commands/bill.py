"""`manage.py bill`: a consumer as a process of its own; SIGTERM lets it finish what it has begun."""

from dataclasses import dataclass
from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections

from turbopump import ConsumeFromWhere, Consumer


@dataclass
class Order:
    id: str
    cents: int


class Command(BaseCommand):
    help = "Bills orders until it is told to stop."

    def handle(self, *args: Any, **options: Any) -> None:
        consumer = Consumer("django-billing", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

        @consumer.on("DjangoOrders")
        def bill(order: Order) -> None:
            close_old_connections()  # no request ends here, which would renew database connections
            self.stdout.write(f"billed {order.id}: {order.cents}")
            self.stdout.flush()

        consumer.run()
