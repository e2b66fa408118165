"""Tables that come batch by batch: where batches come from, and how they become a table."""
