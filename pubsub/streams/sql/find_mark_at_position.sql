-- Which event stands at a position, whatever its topic; no row if it is not there, or no more. Looks into the index of
-- each partition once: positions have no index of their own.
SELECT message.event_id
FROM log_partition_counter AS numbered
JOIN log_entry AS entry
  ON entry.topic_id = numbered.topic_id AND entry.partition_id = numbered.partition_id AND entry.position = %(position)s
JOIN outbox_message_t AS message ON message.id = entry.message_id
LIMIT 1
