-- Two roles for one database: spillway_migrate owns the tables and their partitions, spillway_app works with rows.
-- Once, as a superuser, connected to the database of Spillway:
--
--   psql -d spillway -v app_password=… -v migrate_password=… -f deploy/grants/postgresql.sql
--
-- spillway_migrate: `migrate`, `rotate_partitions` and the Celery worker that runs it, `rebuild_buffer`, a restore.
-- spillway_app:     web, the workers (ingest_events, track_inventory, ingest_messages, flush_buffer, relay_outbox, listen_outbox,
--                   replay_topic, replay_letters), every other command.
-- Debezium has an account of its own, which reads one table: deploy/debezium/postgresql.sql.

CREATE ROLE spillway_migrate LOGIN PASSWORD :'migrate_password';
CREATE ROLE spillway_app LOGIN PASSWORD :'app_password';

SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database()) \gexec
SELECT format('GRANT CONNECT ON DATABASE %I TO spillway_app, spillway_migrate', current_database()) \gexec

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO spillway_migrate;
GRANT USAGE ON SCHEMA public TO spillway_app;

-- What spillway_migrate makes from now on, partitions of next year included.
ALTER DEFAULT PRIVILEGES FOR ROLE spillway_migrate IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO spillway_app;
ALTER DEFAULT PRIVILEGES FOR ROLE spillway_migrate IN SCHEMA public
    GRANT USAGE, SELECT ON SEQUENCES TO spillway_app;

-- After the first `migrate`, deploy/grants/postgresql_after_migrate.sql takes away what spillway_app does not need.
