-- The outbox of a service that hands its messages to Spillway, on MySQL or MariaDB: in the database of the service.
-- Once, as root, with a password of your own; the server runs with log_bin, binlog_format=ROW, binlog_row_image=FULL:
--
--   mysql billing < deploy/debezium/service/mysql.sql
--
-- The service inserts a row in the transaction of the change that it is about, and may delete it at once: the connector
-- reads the log. `id` is the idempotency key, `payload` what the channel takes (docs/messages-in.md).

CREATE TABLE outbox (
    id         char(36) PRIMARY KEY,
    channel    varchar(50) NOT NULL,
    event_type varchar(100) NOT NULL,
    aggregate  varchar(200) NOT NULL,
    payload    json NOT NULL,
    expires_at datetime(6)
);

CREATE USER 'billing_cdc'@'%' IDENTIFIED BY 'change this password';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'billing_cdc'@'%';
GRANT SELECT ON billing.outbox TO 'billing_cdc'@'%';
