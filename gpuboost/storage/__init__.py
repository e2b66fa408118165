"""Arrays that need not stay in memory: files of a format of our own in a private folder, the shelf that
chooses, and files that are mapped."""
