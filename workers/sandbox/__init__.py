"""Run a user's code: one interface (`runner`), its protocol and the ways to run it."""
