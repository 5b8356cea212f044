"""`manage.py reencrypt`: re-encrypt all data with the newest key so older keys can be removed."""

from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q

from memory.alerts.models.webhooks import WebhookEndpoint
from memory.kernel import encryption
from memory.kernel.models.workspaces import Workspace
from memory.llm.models import LlmCall

# All columns whose values are encrypted with `memory.kernel.encryption`.
ENCRYPTED: dict[type[Workspace] | type[LlmCall] | type[WebhookEndpoint], tuple[str, ...]] = {
    Workspace: ("llm_api_key",),
    LlmCall: ("prompt", "answer"),
    WebhookEndpoint: ("secret", "previous_secret"),
}
# The encrypted values in the data of second factors; recovery codes of another system are not ours.
FACTOR_SECRETS = {"secret", "seed"}


class Command(BaseCommand):
    """Re-encrypts data row by row while the server runs; can be stopped and restarted."""

    help = (
        "Re-encrypt all encrypted data with the first key in UAC_ENCRYPTION_KEYS."
        " All servers must already have that key. The exit status is 1 if some data cannot be"
        " decrypted."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Re-encrypt all data, then print how many values were re-encrypted and how many failed."""
        done = failed = 0
        for model, columns in ENCRYPTED.items():
            for column in columns:
                rows = model._default_manager.filter(~Q(**{column: None})).values_list("pk", column)
                for pk, token in rows.iterator(chunk_size=100):
                    try:
                        renewed = encryption.reencrypt(token)
                    except encryption.EncryptionError as error:
                        failed += 1
                        self.stderr.write(f"{model.__name__} {pk}, {column}: {error}")
                        continue
                    # Skip values changed in the meantime: they were written with the first key.
                    unchanged = model._default_manager.filter(**{"pk": pk, column: token})
                    done += unchanged.update(**{column: renewed})
        for row in Authenticator.objects.iterator():
            data = dict(row.data)
            try:
                for name in FACTOR_SECRETS & data.keys():
                    is_new = not encryption.is_token(data[name])
                    renew = encryption.encrypt if is_new else encryption.reencrypt
                    data[name] = renew(data[name].encode()).decode()
            except encryption.EncryptionError as error:
                failed += 1
                self.stderr.write(f"Second factor {row.pk}: {error}")
                continue
            if data != row.data:
                done += Authenticator.objects.filter(pk=row.pk, data=row.data).update(data=data)
        self.stdout.write(f"{done} re-encrypted, {failed} not decrypted")
        if failed:
            raise CommandError("do not remove any key: some content needs a key that is missing")
