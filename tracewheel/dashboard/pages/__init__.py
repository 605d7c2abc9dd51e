"""The pages, each in a module of its own; `app` finds every `Page` here, and the writing forms in `FORMS`."""
