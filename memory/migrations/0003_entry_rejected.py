"""Events of rejected entries, in the feed of alerts: of no alert, but of a user and numbers.

The release before this one goes on inserting events of alerts meanwhile, without the new columns. The
foreign key and the check are validated by 0005, when the index of 0004 is there.
"""

import django.db.models.deletion
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

USER = (
    "ALTER TABLE memory_alertevent ADD COLUMN user_id bigint NULL",
    "ALTER TABLE memory_alertevent ADD CONSTRAINT memory_alertevent_user_id_fk FOREIGN KEY (user_id)"
    " REFERENCES memory_memoryuser (id) DEFERRABLE INITIALLY DEFERRED NOT VALID",
)
NO_USER = "ALTER TABLE memory_alertevent DROP COLUMN user_id;"
# In the order in which the server locks them, or one of the two could be ended as a deadlock.
LOCK = (
    "LOCK TABLE memory_memoryuser IN SHARE ROW EXCLUSIVE MODE;"
    "LOCK TABLE memory_alertevent IN ACCESS EXCLUSIVE MODE;"
)
# By itself Django would make the foreign key anew, and look at all rows for it.
NO_ALERT = "ALTER TABLE memory_alertevent ALTER COLUMN alert_id DROP NOT NULL;"

# As 0002 has it for whatever names a user. Events of alerts name none, so an erasure can be told.
NOBODY_ERASED = """
CREATE TRIGGER alertevent_of_nobody_erased AFTER INSERT ON memory_alertevent
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION memory_user_is_erased();
"""
ANYBODY = "DROP TRIGGER alertevent_of_nobody_erased ON memory_alertevent;"


class Migration(migrations.Migration):
    dependencies = [("memory", "0002_rules")]

    operations = [
        migrations.RunSQL(LOCK, migrations.RunSQL.noop),
        migrations.AddField(
            "alertevent",
            "entries",
            ArrayField(
                models.BigIntegerField(),
                db_default=models.Value([], ArrayField(models.BigIntegerField())),
                default=list,
                help_text="The entries of the user's log that were rejected together.",
            ),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(USER, NO_USER)],
            state_operations=[
                migrations.AddField(
                    "alertevent",
                    "user",
                    models.ForeignKey(
                        "memory.memoryuser",
                        django.db.models.deletion.CASCADE,
                        db_index=False,
                        null=True,
                        related_name="entry_events",
                    ),
                ),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(NO_ALERT, migrations.RunSQL.noop)],
            state_operations=[
                migrations.AlterField(
                    "alertevent",
                    "alert",
                    models.ForeignKey(
                        "memory.alert",
                        django.db.models.deletion.CASCADE,
                        null=True,
                        related_name="events",
                    ),
                ),
            ],
        ),
        migrations.AlterField(
            "alertevent",
            "kind",
            models.CharField(
                choices=[
                    ("opened", "opened"),
                    ("changed", "changed"),
                    ("acknowledged", "acknowledged"),
                    ("snoozed", "snoozed"),
                    ("reopened", "reopened"),
                    ("escalated", "escalated"),
                    ("resolved", "resolved"),
                    ("feedback", "feedback"),
                    ("erased", "erased"),
                    ("rejected", "entries rejected"),
                ],
                max_length=16,
            ),
        ),
        AddConstraintNotValid(
            "alertevent",
            models.CheckConstraint(
                condition=models.Q(alert__isnull=False, user__isnull=True, entries=[])
                | models.Q(alert__isnull=True, user__isnull=False),
                name="event_of_alert_or_entries",
            ),
        ),
        migrations.RunSQL(NOBODY_ERASED, ANYBODY),
    ]
