"""Adapters: the verbs over the arrays of other libraries, loaded on first use."""
