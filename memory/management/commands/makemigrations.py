"""`manage.py makemigrations`: Django's command, for changes of the schema alone."""

from django.core.management.commands import makemigrations

from memory.kernel.database.schema_changes import SchemaAutodetector


class Command(makemigrations.Command):
    """Writes migrations without the texts of models."""

    autodetector = SchemaAutodetector
