-- PgBouncer drops what each session of Spillway brings along, so the role has it. Run as a superuser, for the owner of
-- the tables (spillway_owner) as well if `migrate` goes through the pooler.
ALTER ROLE spillway SET timezone = 'UTC';
ALTER ROLE spillway SET datestyle = 'ISO';
ALTER ROLE spillway SET intervalstyle = 'postgres';
ALTER ROLE spillway SET standard_conforming_strings = on;
ALTER ROLE spillway SET bytea_output = 'hex';
ALTER ROLE spillway SET extra_float_digits = 1;
ALTER ROLE spillway SET default_transaction_isolation = 'read committed';
ALTER ROLE spillway SET idle_in_transaction_session_timeout = '10s';
