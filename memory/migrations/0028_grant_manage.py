from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0027_staff_pages"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="apikey",
            options={
                "ordering": ["workspace", "name"],
                "permissions": [("grant_manage", "Can give API keys the scope manage")],
                "verbose_name": "API key",
            },
        ),
    ]
