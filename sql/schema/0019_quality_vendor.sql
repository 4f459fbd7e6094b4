-- Which counter a card is graded by depends on its vendor. NULL: the model is not known, or the hour was counted before.
alter table reading_hour add column core_active_count bigint;
alter table reading_hour add column vendor varchar;
