"""The worker process, and what runs beside its work: leader, membership, maintenance."""
