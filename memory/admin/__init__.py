"""The staff's screens that compose several subjects; each subject's own are in its `admin`."""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

from django.contrib import admin

import memory
from memory.kernel.admin.tables import register_tables

admin.site.site_title = "UaC"
admin.site.site_header = "UaC: User as Code"
admin.site.index_title = "Now"
# There is no public site to link to.
admin.site.site_url = None


def _import_screens(package: str) -> None:
    for module in iter_modules(import_module(package).__dict__.get("__path__", ()), f"{package}."):
        import_module(module.name)


# Each module registers its screens; the remaining models get one that derives from their columns.
for subject in iter_modules(memory.__path__, "memory."):
    if subject.ispkg and find_spec(f"{subject.name}.admin"):
        _import_screens(f"{subject.name}.admin")
_import_screens(__name__)
register_tables()
