"""The servers and the dealer of secure FedMTL: nothing here imports another part of skpmtl.

`ring` has the arithmetic, `job` what everybody knows, `protocol` sums, products and comparisons of
shares, `computation` the aggregation, `server` the processes.
"""
