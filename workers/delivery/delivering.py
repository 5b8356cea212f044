"""Send webhook messages to endpoints until accepted; messages about the same alert stay in order.

If a worker is killed after sending a message but before recording that it was sent, the worker's
lease expires, and the message is sent again with the same ID.
"""

import datetime
import time

import structlog
from django.conf import settings
from django.utils import timezone

from memory.alerts.delivery import delivery_attempts, webhook_messages
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt
from memory.kernel import encryption
from memory.kernel.work import leases
from workers.delivery import outgoing

logger = structlog.get_logger(__name__)

# How long to wait before retrying an endpoint whose secret can't be read. Once the operator has
# fixed the problem, delivery resumes automatically.
UNREADABLE_WAIT = datetime.timedelta(minutes=5)


def send(delivery: Delivery) -> bool:
    """Send a message that the caller has claimed; return True: the endpoint may have others."""
    began_at, began = timezone.now(), time.monotonic()
    try:
        headers = webhook_messages.signed_headers(delivery, began_at)
    except encryption.EncryptionError as error:
        leases.release(
            delivery,
            attempts=delivery.attempts - 1,  # this isn't an attempt, since no request was sent
            run_after=began_at + UNREADABLE_WAIT,
            last_error=str(error),
        )
        logger.error("webhook_secret_unreadable", endpoint=str(delivery.endpoint_id))
        return True
    answer = outgoing.post(
        delivery.endpoint.url,
        delivery.payload.encode(),
        headers,
        seconds=settings.UAC_WEBHOOK_TIMEOUT_SECONDS,
    )
    attempt = DeliveryAttempt(
        delivery=delivery,
        at=began_at,
        seconds=round(time.monotonic() - began, 3),
        status=answer.status,
        error=answer.error,
        address=answer.address,
        answer=answer.excerpt,
    )
    delivery_attempts.record(attempt, retry_after=answer.retry_after)
    logger.info(
        "webhook_called",
        endpoint=str(delivery.endpoint_id),
        delivery=str(delivery.pk),
        status=answer.status,
        seconds=attempt.seconds,
        delivered=not answer.error,
    )
    return True
