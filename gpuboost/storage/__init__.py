"""Arrays that need not stay in memory: files of a format of our own in a private folder, and the shelf that chooses."""
