-- After the first `migrate`, and after each one that brings tables: spillway_app deletes nothing that flows, and cannot
-- change what is only ever written. As a superuser:
--
--   psql -d spillway -f deploy/grants/postgresql_after_migrate.sql
--
-- Sweeps, rotation and `rebuild_buffer` delete; they run as spillway_migrate. Accounts of people who pulled a lever can
-- then be deactivated in the admin, not deleted.

\set ON_ERROR_STOP on
ALTER DEFAULT PRIVILEGES FOR ROLE spillway_migrate IN SCHEMA public REVOKE DELETE ON TABLES FROM spillway_app;
-- Partitions are tables of their own here.
SELECT format('REVOKE DELETE ON %I FROM spillway_app', relname) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname ~ '^(buffer|outbox|notifications)_' \gexec
-- Lifting a suppression is a person's right.
GRANT DELETE ON notifications_suppression TO spillway_app;

-- The ledger, the operators' trail, what happened to orders.
SELECT format('REVOKE UPDATE ON %I FROM spillway_app', relname) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    AND relname ~ '^(buffer_inventorytracking|outbox_operatoraction|notifications_orderevent)' \gexec
