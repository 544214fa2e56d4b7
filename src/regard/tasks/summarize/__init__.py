"""The task ``summarize``: long text to short, with copied words."""
