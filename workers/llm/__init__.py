"""Call language models through one interface (`interface`), metered and retried (`metered`)."""
