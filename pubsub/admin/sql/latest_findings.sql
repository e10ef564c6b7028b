-- The latest run of each job, with as many of its rows as are shown: each step looks up the next job in an index, so that
-- years of findings cost no more than the last ones.
WITH RECURSIVE latest AS (
    (SELECT job, run_id FROM spark_findings ORDER BY job, made_at DESC LIMIT 1)
    UNION ALL
    SELECT following.job, following.run_id
    FROM latest CROSS JOIN LATERAL (
        SELECT job, run_id FROM spark_findings WHERE job > latest.job ORDER BY job, made_at DESC LIMIT 1
    ) AS following
)
SELECT found.*
FROM latest CROSS JOIN LATERAL (
    SELECT * FROM spark_findings
    WHERE run_id = latest.run_id AND job = latest.job ORDER BY row_number LIMIT %(most)s
) AS found
ORDER BY found.job, found.row_number
