"""Make user_ids unique among users who are not erased, by an index that is no key.

An erasure replaces the user_id. With a unique constraint over all rows, PostgreSQL treats this as a
change of a key, which conflicts with every transaction that adds a row about the user: whoever
already held something that the erasure needs, such as a lane, deadlocked with it. A foreign key
cannot refer to an index with a condition.
"""

from django.db import migrations, models

NAME = "user_id_of_remembered"
CREATE = f"""
CREATE UNIQUE INDEX CONCURRENTLY {NAME} ON memory_memoryuser (workspace_id, user_id)
WHERE erased_at IS NULL
"""
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"  # of an attempt that was interrupted


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("memory", "0003_real_data")]

    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL([DROP, CREATE], DROP)],
            [
                migrations.AddConstraint(
                    model_name="memoryuser",
                    constraint=models.UniqueConstraint(
                        condition=models.Q(("erased_at", None)),
                        fields=("workspace", "user_id"),
                        name=NAME,
                    ),
                )
            ],
        ),
        migrations.RemoveConstraint(model_name="memoryuser", name="user_id_in_workspace"),
    ]
