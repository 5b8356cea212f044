"""The staff: their access rights, the audit of their actions, and the data on their pages."""
