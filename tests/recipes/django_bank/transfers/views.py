import json

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from transfers.saga import Transfer, bank, transfer
from turbopump.transactions import Aborted


@csrf_exempt
@require_POST
def move(request: HttpRequest) -> JsonResponse:
    order = Transfer(**json.loads(request.body))
    try:
        outcome = bank().run(transfer, order, gid=f"django-order-{order.id}")
    except Aborted as no:
        return JsonResponse({"reason": no.reason}, status=409)
    return JsonResponse({"gid": outcome.gid})
