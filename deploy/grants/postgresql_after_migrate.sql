-- After the first `migrate`, and after each one that brings tables: spillway_app deletes nothing that flows, cannot
-- change what is only ever written, and cannot give itself rights. As a superuser:
--
--   psql -d spillway -f deploy/grants/postgresql_after_migrate.sql
--
-- Sweeps, rotation and `rebuild_buffer` delete; they run as spillway_migrate.

\set ON_ERROR_STOP on
ALTER DEFAULT PRIVILEGES FOR ROLE spillway_migrate IN SCHEMA public REVOKE DELETE ON TABLES FROM spillway_app;
-- Partitions are tables of their own here.
SELECT format('REVOKE DELETE ON %I FROM spillway_app', relname) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname ~ '^(buffer|outbox|notifications|throttler)_' \gexec
-- Lifting a suppression, forgetting a worker that was scaled away, what accounts keep for themselves, log-ins that end.
GRANT DELETE ON notifications_suppression, outbox_workerprocess, outbox_savedview, outbox_viewerzone, outbox_signin
    TO spillway_app;
-- It is a person's right as well to tell somebody no more; and a notice of an end that came back is not sent.
GRANT DELETE ON outbox_subscription, outbox_notice TO spillway_app;

-- The ledger, the operators' trail and its seals, edited copies, what happened to orders.
SELECT format('REVOKE UPDATE ON %I FROM spillway_app', relname) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    AND relname ~ '^(buffer_inventorytracking|outbox_operatoraction|outbox_actionseal|outbox_actionsubject|outbox_payloadrevision|outbox_resend|notifications_orderevent)' \gexec

-- The record of logins: who logged in and who failed to. A logout writes its time; failures that count at present
-- (axes_accessattempt) go with the next login.
REVOKE UPDATE, DELETE ON axes_accesslog, axes_accessfailurelog FROM spillway_app;
GRANT UPDATE (logout_time) ON axes_accesslog TO spillway_app;

-- Only `migrate` writes these.
REVOKE INSERT, UPDATE, DELETE ON auth_permission, django_content_type, django_migrations, outbox_offeredright
    FROM spillway_app;
