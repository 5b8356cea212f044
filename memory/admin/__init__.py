"""Admin screens for staff, one module per kind of row."""

from importlib import import_module
from pkgutil import iter_modules

from django.contrib import admin

from memory.admin.tables import register_tables

admin.site.site_title = "UaC"
admin.site.site_header = "UaC: User as Code"
admin.site.index_title = "People's memories"
# There is no public site to link to, and wide lists need the space the sidebar would take up.
admin.site.site_url = None
admin.site.enable_nav_sidebar = False

# Each module registers its screens; the remaining models get one that derives from their columns.
for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
register_tables()
