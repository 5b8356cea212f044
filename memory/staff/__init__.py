"""Staff: access rights, the audit of their actions, and the data shown on their pages."""
