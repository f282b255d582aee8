-- Two accounts for one database, on MySQL and MariaDB: spillway_migrate changes tables, spillway_app works with rows.
-- Once, as root, with passwords of your own in place of the two below:
--
--   mysql < deploy/grants/mysql.sql
--
-- spillway_migrate: `migrate`, `rotate_partitions` and the Celery worker that runs it, `rebuild_buffer`, a restore.
-- spillway_app:     web, the workers (ingest_events, track_inventory, ingest_messages, flush_buffer, relay_outbox, listen_outbox,
--                   replay_topic, replay_letters), every other command.
-- Debezium has an account of its own, which reads one table: deploy/debezium/mysql.sql.

CREATE DATABASE IF NOT EXISTS spillway CHARACTER SET utf8mb4;

CREATE USER 'spillway_migrate'@'%' IDENTIFIED BY 'change this password';
CREATE USER 'spillway_app'@'%' IDENTIFIED BY 'change this password, too';

-- LOCK TABLES: a drop of a partition keeps writers out while it looks for unfinished rows.
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, LOCK TABLES
    ON spillway.* TO 'spillway_migrate'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON spillway.* TO 'spillway_app'@'%';

-- After the first `migrate`, deploy/grants/mysql_after_migrate.sql takes away what spillway_app does not need.
