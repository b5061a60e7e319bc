"""Answer requests about transactions: begin, add partitions, end, and describe."""
