"""Asking a language model: one interface (`interface`), metered and retried (`metered`)."""
