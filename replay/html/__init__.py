"""The answer as one page with pictures; needs the extra `html`."""
