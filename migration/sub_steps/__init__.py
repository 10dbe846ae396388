"""Sub-steps of courses: each looks at the facts and answers what is missing. Pure. `registry` has them by name."""
