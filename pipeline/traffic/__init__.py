"""Traffic of topics per minute, as a report with plots and a forecast."""
