"""Send emails to staff: claim a subscription, send what is new, and advance the cursor.

An email is sent before the cursor advances: if a worker is killed between these two steps, the
email is sent again.
"""

import datetime
from smtplib import SMTPConnectError, SMTPServerDisconnected

import structlog
from django.conf import settings
from django.utils import timezone

from memory.alerts.delivery import staff_mail
from memory.alerts.models.staff_mail import StaffSubscription
from memory.kernel.work import leases

NO_ANSWER = (TimeoutError, ConnectionError, SMTPConnectError, SMTPServerDisconnected)

logger = structlog.get_logger(__name__)

# How long to pause after the mail server has failed to respond, so that this process runs into the
# timeout only once instead of once per subscription.
PAUSE = datetime.timedelta(seconds=30)
_silent_until = datetime.datetime.min.replace(tzinfo=datetime.UTC)

NO_BACKEND = "django.core.mail.backends.dummy.EmailBackend"


class CannotMail(Exception):
    """A setting has to be fixed before this email can be sent; the message names the setting."""


def claim(subscription_pk: int) -> StaffSubscription | None:
    """Claim a subscription, unless the mail server has just failed to respond."""
    if timezone.now() < _silent_until:
        return None
    return leases.claim(StaffSubscription.objects.filter(pk=subscription_pk, enabled=True))


def send(subscription: StaffSubscription) -> None:
    """Send the emails that are due for a subscription; a failed email is retried later."""
    global _silent_until
    try:
        for column in staff_mail.due(subscription, timezone.now()):
            for news in staff_mail.news(subscription, column):
                _send_news(subscription, news)
    except (CannotMail, OSError) as error:
        if isinstance(error, NO_ANSWER):
            _silent_until = timezone.now() + PAUSE
        # The mail server's error message may quote the email, so only the error's type is logged.
        logger.warning("mail_not_sent", subscription=subscription.pk, error=type(error).__name__)
        raise leases.Postponed(f"{type(error).__name__}: {error}") from error
    leases.release(subscription, attempts=0, last_error="")


def _send_news(subscription: StaffSubscription, news: staff_mail.News) -> None:
    if news.number:
        if not subscription.staff.has_perm("memory.view_alert"):
            raise CannotMail(
                f"{subscription.staff.get_username()} has no permission to view alerts: grant it,"
                " or turn the subscription off."
            )
        if settings.EMAIL_BACKEND == NO_BACKEND:
            raise CannotMail("EMAIL_URL is not set: there is no mail server to send with.")
        staff_mail.mail(subscription, news).send()
        logger.info("mail_sent", subscription=subscription.pk, alerts=news.number)
    staff_mail.record_progress(subscription, news, timezone.now())
