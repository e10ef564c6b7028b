-- Gives all that belongs to a group on a topic another name: its subscription, cursors, leases, dead letters and samples,
-- and delayed events that are for it alone. Its members join again by themselves.
WITH subscription AS (
    UPDATE outbox_topic_subscriptions SET group_id = %(name)s WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
), leases AS (
    UPDATE consumer_claims SET group_id = %(name)s WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
), letters AS (
    UPDATE dead_letter_queue SET group_id = %(name)s WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
), samples AS (
    UPDATE outbox_samples SET group_id = %(name)s WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
), delayed AS (
    UPDATE outbox_delayed_message SET to_group = %(name)s WHERE topic_id = %(topic_id)s AND to_group = %(group_id)s
), members AS (
    DELETE FROM outbox_members WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
)
UPDATE consumer_offsets SET group_id = %(name)s WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
