"""Pages, one module per subject. `console.routes` finds each."""
