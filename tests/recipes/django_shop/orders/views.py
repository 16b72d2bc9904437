import json

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from orders.messaging import producer
from turbopump import Message


@csrf_exempt
@require_POST
def place(request: HttpRequest) -> JsonResponse:
    order = json.loads(request.body)
    receipt = producer().send(Message.json("DjangoOrders", order, keys=order["id"]))
    return JsonResponse({"message": receipt.message_id}, status=202)
