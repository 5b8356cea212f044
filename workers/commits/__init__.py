"""What becomes a version: typed entries, proposals, imports and redactions."""
