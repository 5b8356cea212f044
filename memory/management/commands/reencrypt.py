"""`manage.py reencrypt`: re-encrypt everything with the newest key, to retire older keys."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q

from memory.models import LlmCall, WebhookEndpoint, Workspace
from memory.privacy import encryption

# Every column that `memory.privacy.encryption` encrypts.
ENCRYPTED: dict[type[Workspace] | type[LlmCall] | type[WebhookEndpoint], tuple[str, ...]] = {
    Workspace: ("llm_api_key",),
    LlmCall: ("prompt", "answer"),
    WebhookEndpoint: ("secret", "previous_secret"),
}


class Command(BaseCommand):
    """Re-encrypts data row by row, on a running server; it may be stopped and run again."""

    help = (
        "Re-encrypt all encrypted data with the first key of UAC_ENCRYPTION_KEYS."
        " All servers must have that key first. Exit status 1 if something cannot be decrypted."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a last line that counts the values encrypted and those that failed."""
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
                    # Skip a row that was written meanwhile: that write used the first key.
                    unchanged = model._default_manager.filter(**{"pk": pk, column: token})
                    done += unchanged.update(**{column: renewed})
        self.stdout.write(f"{done} re-encrypted, {failed} not decrypted")
        if failed:
            raise CommandError("do not remove any key: some content requires a key that is missing")
