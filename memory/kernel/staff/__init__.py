"""Staff: what they may see and do, and the audit of their actions."""
