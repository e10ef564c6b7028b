-- Notes what an operator did, or what was decided automatically, in the transaction that does it.
INSERT INTO operator_events (actor, action, topic, group_id, reason, before, after)
VALUES (%(actor)s, %(action)s, %(topic)s, %(group_id)s, %(reason)s, %(before)s::jsonb, %(after)s::jsonb)
