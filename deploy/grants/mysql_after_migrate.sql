-- After the first `migrate`: spillway_app deletes nothing that flows. As root:
--
--   mysql < deploy/grants/mysql_after_migrate.sql
--
-- Sweeps, rotation and `rebuild_buffer` delete; they run as spillway_migrate. UPDATE stays: an upsert asks for it even
-- where it changes nothing.

REVOKE DELETE ON spillway.* FROM 'spillway_app'@'%';
-- What the admin deletes: sessions, accounts, groups, a suppression that is lifted.
GRANT DELETE ON spillway.django_session TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_user TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_user_groups TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_user_user_permissions TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_group TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_group_permissions TO 'spillway_app'@'%';
GRANT DELETE ON spillway.notifications_suppression TO 'spillway_app'@'%';
