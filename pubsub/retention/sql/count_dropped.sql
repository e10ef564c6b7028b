-- Counts the entries of segments as dropped, so that a group which begins at the oldest entry knows how many it never
-- had.
UPDATE log_partition_counter AS counter SET retired = counter.retired + gone.entries
FROM (
    SELECT topic_id, partition_id, sum(entries) AS entries FROM log_segments
    WHERE lower = ANY (%(lowers)s) GROUP BY topic_id, partition_id
) AS gone
WHERE (counter.topic_id, counter.partition_id) = (gone.topic_id, gone.partition_id)
