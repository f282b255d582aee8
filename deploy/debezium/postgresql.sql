-- What Debezium needs in the database of Spillway (PostgreSQL 15 or newer): a role and a publication.
-- Once, as a superuser, after the first `migrate`, with wal_level=logical:
--
--   psql -d spillway -v cdc_password=… -f deploy/debezium/postgresql.sql
--
-- The slot is made by the connector. A slot keeps the write-ahead log from the last position its reader confirmed: of a
-- connector that is down for days the disk pays. Bound it; a slot that falls behind is lost, and the poller covers:
--
--   ALTER SYSTEM SET max_slot_wal_keep_size = '10GB';
--   SELECT pg_reload_conf();

CREATE ROLE spillway_cdc LOGIN REPLICATION PASSWORD :'cdc_password';
SELECT format('GRANT CONNECT ON DATABASE %I TO spillway_cdc', current_database()) \gexec
GRANT USAGE ON SCHEMA public TO spillway_cdc;
-- Read by the snapshot only; the stream does not ask for it.
GRANT SELECT (id, event_type, created_at, state) ON outbox_outboxmessage TO spillway_cdc;

-- Three columns, so that no payload leaves the server; inserts only, so that a status never travels; under the name of
-- the table itself, whatever partition a row went to and however many `rotate_partitions` adds.
CREATE PUBLICATION spillway_outbox FOR TABLE outbox_outboxmessage (id, event_type, created_at)
    WITH (publish = 'insert', publish_via_partition_root = true);
