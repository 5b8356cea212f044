from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("memory", "0013_llm_sessions")]

    operations = [
        AddIndexConcurrently(
            model_name="llmcall",
            index=models.Index(
                condition=models.Q(accepted__isnull=False),
                fields=["workspace", "model", "-started_at"],
                name="llm_call_judged_of_model",
            ),
        ),
        RemoveIndexConcurrently(model_name="llmcall", name="llm_call_first_of_user"),
        RemoveIndexConcurrently(model_name="run", name="run_of_model"),
    ]
