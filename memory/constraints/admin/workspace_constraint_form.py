"""The form that staff use to write a workspace constraint."""

from typing import Any

from django import forms
from django.core.validators import MaxValueValidator

from memory.constraints import constraint_library, workspace_constraints
from memory.constraints.admin.workspace_constraint_versions import newest_version
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.admin.display import visible
from memory.kernel.admin.source import marks
from memory.versions.admin.verdicts import refused_lines


def _editor(rows: int) -> forms.Textarea:
    return forms.Textarea(attrs={"class": "code", "rows": rows, "cols": 100, "spellcheck": "false"})


class ConstraintForm(forms.ModelForm[WorkspaceConstraint]):
    """The form for a constraint's text, which becomes the constraint's next version."""

    start_from = forms.ChoiceField(
        required=False,
        help_text="The library constraint to start from. The new constraint has the same name;"
        " source or tests entered below replace the library's.",
    )
    source = forms.CharField(required=False, strip=False, widget=_editor(40))
    tests = forms.CharField(required=False, strip=False, widget=_editor(30))

    sure = forms.BooleanField(
        required=False,
        label="Change for whom it runs",
        help_text="To be ticked with a new percentage.",
    )

    class Meta:
        model = WorkspaceConstraint
        fields = ["workspace", "name", "description", "percentage"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            names = constraint_library.names()
            choices = [("", "empty source"), *((name, name) for name in names)]
            self.fields["start_from"].choices = choices  # type: ignore[attr-defined]
            self.fields["name"].required = False
            if (chosen := self.initial.get("start_from")) in names:
                # The text can be read and changed before it is saved.
                library_constraint = constraint_library.read(chosen)
                self.fields["start_from"].widget = forms.HiddenInput()
                for name in ("name", "source", "tests"):
                    self.initial[name] = getattr(library_constraint, name)
                self.initial["description"] = library_constraint.summary
        else:
            del self.fields["start_from"]
            self.initial["sure"] = False
            newest = newest_version(self.instance)
            # In Python source, an escape sequence means the same as the character it stands for,
            # and cannot alter the page.
            self.initial["source"] = visible(newest.source)
            self.initial["tests"] = visible(newest.tests)
            paths = {"source": self.instance.path, "tests": self.instance.tests_path}
            for name, path in paths.items():
                refused = marks(refused_lines(newest.verdict, path))
                if refused and name in self.fields:
                    self.fields[name].widget.attrs["data-marks"] = refused
            self.initial["description"] = visible(self.instance.description)
        # Read-only staff get a form without fields.
        if percentage := self.fields.get("percentage"):
            percentage.validators.append(MaxValueValidator(100))
        if description := self.fields.get("description"):
            description.widget.attrs["class"] = "vLargeTextField"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for name in ("source", "tests"):
            cleaned[name] = (cleaned.get(name) or "").replace("\r\n", "\n")
        is_new = "percentage" in self.changed_data and "percentage" in cleaned
        if is_new and not cleaned.get("sure"):
            self.add_error(
                "sure",
                f"The constraint would run for {cleaned['percentage']} % of the users"
                f" instead of {self.initial['percentage']} %. To confirm this, tick the box.",
            )
        if chosen := cleaned.get("start_from"):
            library_constraint = constraint_library.read(chosen)
            if cleaned.get("name") not in ("", library_constraint.name):
                self.add_error(
                    "name",
                    "Leave the name empty: the library's tests import the constraint as"
                    f" {library_constraint.name}.",
                )
            cleaned["name"] = library_constraint.name
            for name in ("source", "tests"):
                cleaned[name] = (
                    cleaned[name] if cleaned[name].strip() else getattr(library_constraint, name)
                )
            cleaned["description"] = cleaned.get("description") or library_constraint.summary
        self.instance.name = cleaned.get("name") or self.instance.name
        try:
            if not self.instance.name:
                raise workspace_constraints.BadConstraint(
                    "name", "Enter a name, or choose a library constraint."
                )
            if self.instance._state.adding:
                workspace_constraints.check_name(self.instance.name)
                workspace = cleaned.get("workspace")
                if workspace and workspace.constraints.filter(name=self.instance.name).exists():
                    self.add_error("name", "The workspace already has a constraint with this name.")
            workspace_constraints.check_text(cleaned["source"], cleaned["tests"])
        except workspace_constraints.BadConstraint as error:
            self.add_error(error.field if error.field in self.fields else None, str(error))
        return cleaned
