"""Call language models: one interface (`interface`), metered and retried (`metered`)."""
