"""Pages, one module per subject, each with a blueprint of its name."""
