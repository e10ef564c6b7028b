-- How many of a topic's events a group had passed at each sample. Over all partitions: the events numbered by then, less
-- those that the group had not passed yet.
SELECT topic.id AS topic_id, topic.name COLLATE "C" AS topic, sample.group_id COLLATE "C" AS group_id, sample.taken_at,
       sample.tip - sample.lag AS passed
FROM outbox_samples AS sample JOIN outbox_topics AS topic ON topic.id = sample.topic_id
WHERE sample.group_id <> ''
