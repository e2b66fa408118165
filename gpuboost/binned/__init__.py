"""A table as bin numbers: the cuts that made them (cuts), the pages that hold them (pages), and how columns of few bins share a
byte (packing). Plain data: data/ makes it, backend/ trains on it."""
