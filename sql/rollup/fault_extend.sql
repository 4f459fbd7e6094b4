-- name: fault_extend()!
-- Faults that are known already and were told again: until when, by whom, and what was said of them.
-- Grain: one row per fault.
-- Reads: fault_group
-- Writes: fault
-- Units: none
-- Ignores: tellings more than 5 min before or after a fault: those are another one. What is told twice changes nothing.
update fault
set
    last_at = greatest(fault.last_at, again.last_at),
    event_count = greatest(fault.event_count, again.event_count),
    sources = list_sort(list_distinct(list_concat(fault.sources, again.sources))),
    detail = coalesce(again.detail, fault.detail),
    is_begin_known = fault.is_begin_known or again.is_begin_known,
    is_told = fault.is_told or again.is_told
from (
    select
        known.gpu_uuid,
        known.node,
        known.kind,
        known.code,
        known.ts,
        max(news.last_at) as last_at,
        max(news.event_count) as event_count,
        list_distinct(flatten(list(news.sources))) as sources,
        arg_max(news.detail, news.last_at) filter (where news.detail is not null) as detail,
        bool_or(news.is_begin_known) as is_begin_known,
        bool_or(news.is_told) as is_told
    from fault as known
    inner join fault_group as news
        on
            known.gpu_uuid = news.gpu_uuid
            and (known.gpu_uuid <> '' or known.node = news.node)
            and known.kind = news.kind
            and known.code = news.code
            and news.ts <= known.last_at + interval 5 minute
            and news.last_at >= known.ts - interval 5 minute
    group by known.gpu_uuid, known.node, known.kind, known.code, known.ts
) as again
where
    fault.gpu_uuid = again.gpu_uuid
    and fault.node = again.node
    and fault.kind = again.kind
    and fault.code = again.code
    and fault.ts = again.ts;
