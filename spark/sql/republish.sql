-- Publishes archived events again, for one group only, in the order given. They keep their ids, so that handlers recognise
-- what they have already done, and say where they come from.
INSERT INTO outbox_message_t (event_id, topic_id, type, key, host_id, user_id, to_group, payload, metadata)
SELECT event_id, %(topic_id)s, type, key, host_id, user_id, %(group)s, payload::jsonb,
       metadata::jsonb || jsonb_build_object('replayed_from',
           jsonb_build_object('offset', c_offset, 'published_at', created_at))
FROM unnest(%(event_ids)s::uuid[], %(types)s::text[], %(keys)s::text[], %(host_ids)s::text[], %(user_ids)s::text[],
            %(payloads)s::text[], %(metadatas)s::text[], %(offsets)s::bigint[], %(times)s::timestamptz[])
     AS archived (event_id, type, key, host_id, user_id, payload, metadata, c_offset, created_at)
ORDER BY c_offset
