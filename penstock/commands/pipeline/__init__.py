"""`penstock pipeline`: jobs on Spark."""
