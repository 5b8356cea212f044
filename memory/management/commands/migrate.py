"""`manage.py migrate`: Django's command, which reports changes of the schema alone."""

from django.core.management.commands import migrate

from memory.kernel.database.schema_changes import SchemaAutodetector


class Command(migrate.Command):
    """Does not report models whose texts alone differ from the migrations."""

    autodetector = SchemaAutodetector
