"""Finished models: what one tree holds (tree) and what a model file does (model). Imports nothing of growing."""
