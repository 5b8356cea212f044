"""The staff: their access, the audit, and the figures on their pages."""
