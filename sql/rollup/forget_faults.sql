-- name: forget_faults(from_at, to_at)!
-- Forget faults of the window that only readings told, and that the readings do not tell any more: an earlier one came late.
-- Grain: none
-- Reads: fault_group, fault
-- Writes: fault
-- Units: none
-- Ignores: what a driver or a scheduler told.
delete from fault
where
    fault.ts >= :from_at::timestamptz
    and fault.ts < :to_at::timestamptz
    and not fault.is_told
    and not exists (
        select 1
        from fault_group as news
        where
            news.gpu_uuid = fault.gpu_uuid
            and news.kind = fault.kind
            and news.code = fault.code
            and news.ts <= fault.last_at + interval 5 minute
            and news.last_at >= fault.ts - interval 5 minute
    );
