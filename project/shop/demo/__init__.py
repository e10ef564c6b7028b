"""The demo: a shop that is open while you watch.

Reading order: run → prepare → processes → child → traffic → figures → display → audit.
"""
