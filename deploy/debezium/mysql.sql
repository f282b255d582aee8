-- What Debezium needs, on MySQL and MariaDB: one account that reads the binary log and three columns.
-- Once, as root, with a password of your own; the server runs with log_bin, binlog_format=ROW, binlog_row_image=FULL:
--
--   mysql < deploy/debezium/mysql.sql
--
-- The binary log is kept for binlog_expire_logs_seconds: a connector that is down for longer starts again from scratch.

CREATE USER 'spillway_cdc'@'%' IDENTIFIED BY 'change this password';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'spillway_cdc'@'%';
GRANT SELECT ON spillway.outbox_outboxmessage TO 'spillway_cdc'@'%';
