from django.db import migrations, models

KINDS = [
    ("constraints", "constraints"),
    ("constraint", "one constraint, tried"),
    ("query", "query"),
    ("ask", "question"),
    ("follow_up", "follow-up question"),
    ("proposal", "proposal"),
    ("import", "import"),
]


class Migration(migrations.Migration):
    dependencies = [("memory", "0014_llm_sessions_index")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="kind",
            field=models.CharField(choices=KINDS, max_length=16),
        )
    ]
