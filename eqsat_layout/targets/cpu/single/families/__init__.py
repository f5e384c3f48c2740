"""Families of schedules, the fastest first; each says which stages it is for."""
