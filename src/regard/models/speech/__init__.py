"""Models that listen: encoders of sounds, transcribers, and a classifier of sounds.

Nothing is imported here: each module brings what it needs.
"""
