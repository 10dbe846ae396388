"""Dead letters of a group by reason and shape, and a plan for their redrive."""
