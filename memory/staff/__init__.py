"""Staff: access rights, the audit of staff actions, and the data shown on staff pages."""
