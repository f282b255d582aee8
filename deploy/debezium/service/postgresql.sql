-- The outbox of a service that hands its messages to Spillway, on PostgreSQL 15 or newer: in the database of the service.
-- Once, as a superuser, with wal_level=logical:
--
--   psql -d billing -v cdc_password=… -f deploy/debezium/service/postgresql.sql
--
-- The service inserts a row in the transaction of the change that it is about, and may delete it at once: the connector
-- reads the log. `id` is the idempotency key, `payload` what the channel takes (docs/messages-in.md).

CREATE TABLE outbox (
    id         uuid PRIMARY KEY,
    channel    varchar(50) NOT NULL,
    event_type varchar(100) NOT NULL,
    aggregate  varchar(200) NOT NULL,
    payload    jsonb NOT NULL,
    expires_at timestamptz
);

CREATE ROLE billing_cdc LOGIN REPLICATION PASSWORD :'cdc_password';
SELECT format('GRANT CONNECT ON DATABASE %I TO billing_cdc', current_database()) \gexec
GRANT USAGE ON SCHEMA public TO billing_cdc;
GRANT SELECT ON outbox TO billing_cdc;

CREATE PUBLICATION billing_outbox FOR TABLE outbox WITH (publish = 'insert');
