-- PgBouncer drops what each session of Spillway brings along, so the role has it. Run as a superuser, for the owner of
-- the tables (spillway_migrate) as well if `migrate` goes through the pooler.
ALTER ROLE spillway_app SET timezone = 'UTC';
ALTER ROLE spillway_app SET datestyle = 'ISO';
ALTER ROLE spillway_app SET intervalstyle = 'postgres';
ALTER ROLE spillway_app SET standard_conforming_strings = on;
ALTER ROLE spillway_app SET bytea_output = 'hex';
ALTER ROLE spillway_app SET extra_float_digits = 1;
ALTER ROLE spillway_app SET default_transaction_isolation = 'read committed';
ALTER ROLE spillway_app SET idle_in_transaction_session_timeout = '10s';
