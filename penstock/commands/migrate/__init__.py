"""`penstock migrate`: one file per command. `work` has what they share."""
