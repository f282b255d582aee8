-- After the first `migrate`, and after each one that brings tables: spillway_app deletes nothing that flows, cannot
-- change the operators' trail, and cannot give itself rights. As root:
--
--   mysql < deploy/grants/mysql_after_migrate.sql
--
-- Sweeps, rotation and `rebuild_buffer` delete; they run as spillway_migrate. UPDATE stays elsewhere: an upsert asks for
-- it even where it changes nothing. Nothing is granted on auth_permission, django_content_type, django_migrations and
-- outbox_offeredright: only `migrate` writes them.

-- Granted first: at the second time MySQL would refuse to take away what is not there.
GRANT INSERT, UPDATE, DELETE ON spillway.* TO 'spillway_app'@'%';
REVOKE INSERT, UPDATE, DELETE ON spillway.* FROM 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.auth_group TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.auth_group_permissions TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.auth_user TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.auth_user_groups TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.auth_user_user_permissions TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.axes_accessattempt TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.axes_accessattemptexpiration TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.buffer_batch TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.buffer_bucket TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.buffer_bufferedevent TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.buffer_inventoryitem TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.buffer_inventorylocation TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.buffer_inventorystock TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.buffer_inventorytracking TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.django_admin_log TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.django_session TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.notifications_apitoken TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.notifications_delivery TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.notifications_order TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.notifications_orderevent TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.notifications_suppression TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.notifications_webhookevent TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_burialkey TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_channelstate TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_deadletter TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_deliveryattempt TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_failuregroup TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_proofround TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_grouphour TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_groupquota TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_flowcounter TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_flowminute TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_idempotencykey TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_joblease TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_incident TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_notice TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_subscription TO 'spillway_app'@'%';
-- The record of logins: a logout writes its time.
GRANT INSERT ON spillway.axes_accessfailurelog TO 'spillway_app'@'%';
GRANT INSERT ON spillway.axes_accesslog TO 'spillway_app'@'%';
GRANT UPDATE ON spillway.axes_accessfailurelog TO 'spillway_app'@'%';
GRANT UPDATE ON spillway.axes_accesslog TO 'spillway_app'@'%';
REVOKE UPDATE ON spillway.axes_accessfailurelog FROM 'spillway_app'@'%';
REVOKE UPDATE ON spillway.axes_accesslog FROM 'spillway_app'@'%';
GRANT UPDATE (logout_time) ON spillway.axes_accesslog TO 'spillway_app'@'%';
-- The operators' trail, its seals, edited copies and what was resent are only ever written.
GRANT INSERT ON spillway.outbox_actionseal TO 'spillway_app'@'%';
GRANT INSERT ON spillway.outbox_actionsubject TO 'spillway_app'@'%';
GRANT INSERT ON spillway.outbox_operatoraction TO 'spillway_app'@'%';
GRANT INSERT ON spillway.outbox_payloadrevision TO 'spillway_app'@'%';
GRANT INSERT ON spillway.outbox_resend TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_outboxmessage TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_replaybatch TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_replayitem TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_savedview TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_viewerzone TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_signin TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_topicreplay TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_watermark TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.outbox_workerprocess TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.throttler_customer TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.throttler_customerperiod TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.throttler_lane TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.throttler_laneowner TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.throttler_lanepartition TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.throttler_outputdivision TO 'spillway_app'@'%';
GRANT INSERT, UPDATE ON spillway.throttler_overflowmessage TO 'spillway_app'@'%';
-- What the admin deletes: sessions, accounts, groups, a suppression that is lifted, failed logins that no longer count, a
-- worker that was scaled away, saved views, the zone of a deleted account, log-ins at the identity provider that end.
GRANT DELETE ON spillway.auth_group TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_group_permissions TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_user TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_user_groups TO 'spillway_app'@'%';
GRANT DELETE ON spillway.auth_user_user_permissions TO 'spillway_app'@'%';
GRANT DELETE ON spillway.axes_accessattempt TO 'spillway_app'@'%';
GRANT DELETE ON spillway.axes_accessattemptexpiration TO 'spillway_app'@'%';
GRANT DELETE ON spillway.django_admin_log TO 'spillway_app'@'%';
GRANT DELETE ON spillway.django_session TO 'spillway_app'@'%';
GRANT DELETE ON spillway.notifications_suppression TO 'spillway_app'@'%';
GRANT DELETE ON spillway.outbox_savedview TO 'spillway_app'@'%';
GRANT DELETE ON spillway.outbox_signin TO 'spillway_app'@'%';
GRANT DELETE ON spillway.outbox_viewerzone TO 'spillway_app'@'%';
GRANT DELETE ON spillway.outbox_workerprocess TO 'spillway_app'@'%';
GRANT DELETE ON spillway.outbox_notice TO 'spillway_app'@'%';
GRANT DELETE ON spillway.outbox_subscription TO 'spillway_app'@'%';
