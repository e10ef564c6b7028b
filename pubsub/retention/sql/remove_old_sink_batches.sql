-- Removes the records of batches that streams published long ago. The latest of each stream stay, however old they are: a
-- stream that restarts from its checkpoint repeats the last one, and must find it here.
DELETE FROM spark_sink_batches
WHERE (sink, batch_id) IN (
    SELECT old.sink, old.batch_id
    FROM (SELECT sink, max(batch_id) AS latest FROM spark_sink_batches GROUP BY sink) AS stream
    JOIN spark_sink_batches AS old ON old.sink = stream.sink AND old.batch_id <= stream.latest - %(keep)s
    WHERE old.published_at < clock_timestamp() - make_interval(secs => %(older_s)s)
    LIMIT %(limit)s
)
