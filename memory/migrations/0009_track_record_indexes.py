from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("memory", "0008_track_record_settings")]

    operations = [
        AddIndexConcurrently(
            model_name="llmcall",
            index=models.Index(
                condition=models.Q(attempt=1, purpose="structure", turn=1),
                fields=["workspace", "model", "-started_at"],
                name="llm_call_first_of_model",
            ),
        ),
        AddIndexConcurrently(
            model_name="llmcall",
            index=models.Index(
                condition=models.Q(attempt=1, purpose="structure", turn=1),
                fields=["user", "started_at"],
                name="llm_call_first_of_user",
            ),
        ),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                condition=models.Q(kind="proposal", trigger="model"),
                fields=["user", "queued_at"],
                name="run_of_model",
            ),
        ),
        AddIndexConcurrently(
            model_name="checkpoint",
            index=models.Index(
                condition=models.Q(origin="restored"),
                fields=["user", "version"],
                name="checkpoint_restored",
            ),
        ),
    ]
