"""From committed rows to a gapless log: the sequencer, what is delayed, and how it wakes those that wait."""
