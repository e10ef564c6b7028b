-- Of the functions and operators that a view uses, the schemas in which others than the present role may create: there
-- they could add one that suits better, and it would be used instead. Those whose rights are greater anyway, or the same,
-- are no others: superusers, the database's owner, members of the role. What comes with PostgreSQL is not recorded.
WITH used AS (
    SELECT coalesce(pronamespace, oprnamespace) AS namespace
    FROM pg_rewrite
    JOIN pg_depend ON classid = 'pg_rewrite'::regclass AND objid = pg_rewrite.oid
    LEFT JOIN pg_proc ON refclassid = 'pg_proc'::regclass AND refobjid = pg_proc.oid
    LEFT JOIN pg_operator ON refclassid = 'pg_operator'::regclass AND refobjid = pg_operator.oid
    WHERE ev_class = %(view)s::regclass
), others AS (
    SELECT oid
    FROM pg_roles
    WHERE NOT rolsuper
      AND rolname <> 'pg_database_owner'
      AND oid <> (SELECT datdba FROM pg_database WHERE datname = current_database())
      AND NOT pg_has_role(oid, current_user, 'MEMBER')
)
SELECT nspname::text
FROM pg_namespace
WHERE oid IN (SELECT namespace FROM used)
  AND (EXISTS (SELECT FROM others WHERE has_schema_privilege(others.oid, pg_namespace.oid, 'CREATE'))
       OR EXISTS (SELECT FROM aclexplode(nspacl) WHERE grantee = 0 AND privilege_type = 'CREATE'))
ORDER BY nspname
