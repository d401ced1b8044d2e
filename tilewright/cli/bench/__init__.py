"""The benchmark: cases, the libraries compared, the machine's limits, measuring and reports."""
