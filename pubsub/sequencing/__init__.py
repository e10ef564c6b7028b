"""From committed rows to a gapless log: numbering, who does it, and how the others are woken."""
