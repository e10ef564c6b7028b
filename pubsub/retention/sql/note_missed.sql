-- Notes which offsets a group has missed, by partition. Returns what is now noted. A dead group reads nothing, so its losses
-- add up to one range; of any other group only the last loss is kept here. The audit log has all of them.
UPDATE outbox_topic_subscriptions AS subscription
SET missed = CASE WHEN status = 'DEAD' AND missed IS NOT NULL THEN missed || (
        SELECT jsonb_object_agg(key, jsonb_build_array(
            least((value ->> 0)::bigint, (missed -> key ->> 0)::bigint),
            greatest((value ->> 1)::bigint, (missed -> key ->> 1)::bigint)))
        FROM jsonb_each(%(missed)s::jsonb)
    ) ELSE %(missed)s::jsonb END,
    status_reason = CASE WHEN status = 'DEAD' THEN status_reason ELSE %(reason)s END
WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
RETURNING missed
