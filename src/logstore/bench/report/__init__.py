"""Make tables, plots and one page of what was measured: Spark reads the trace and the JSON.

tables    Spark: the trace joined with pytest-benchmark's JSON, one row a measurement
sheets    the questions, and which rows answer each
plots     matplotlib: one plot a question, as PNG and SVG
claims    what KIP-112 says of JBOD and RAID, beside what was measured
page      one HTML file that holds it all
"""
