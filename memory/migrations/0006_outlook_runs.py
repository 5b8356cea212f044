"""Name the runs that only compute alerts; this changes no row and no column."""

from django.db import migrations, models

KINDS = [
    ("constraints", "constraints"),
    ("constraint", "trial of one constraint"),
    ("query", "query"),
    ("ask", "question"),
    ("follow_up", "follow-up question"),
    ("proposal", "proposal"),
    ("import", "import"),
    ("outlook", "outlook of alerts"),
]


class Migration(migrations.Migration):
    dependencies = [("memory", "0005_test_gaps")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="kind",
            field=models.CharField(choices=KINDS, max_length=16),
        ),
    ]
