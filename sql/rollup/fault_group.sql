-- name: fault_group(from_at, to_at)!
-- What was told of faults in the window: edges of counters and codes in readings, ports that went down, drivers' events, schedulers' conditions; the same code of a card (or port) within 5 min is one.
-- Grain: one row per card (or node), kind, code and run of tellings not more than 5 min apart.
-- Reads: reading, link_reading, fault_event, condition, fault, gpu_model
-- Writes: fault_group
-- Units: none
-- Ignores: an XID that a card goes on showing (the gauge holds the last one), a counter of which the value before is not known (the hour before the window is looked at), values of slices, which repeat the card's. A code that the gauge shows only after a silence, and that somebody else told in that silence, is that fault and no other. A counter that fell was reset: what it shows since is new. A port that was down when it was first seen, and downs counted while a driver was loaded anew. Row remaps are kept by the card and never reset.
create or replace temp table fault_group as
with shown as (
    select ts, node, gpu_uuid, source, model, xid_code, ecc_uncorrected_count, row_remap_uncorrectable_count, row_remap_failure
    from reading
    where
        ts >= :from_at::timestamptz - interval 1 hour
        and ts < :to_at::timestamptz
        and slice_id = ''
),

-- Few cards ever show anything: only they are looked at reading by reading.
suspects as (
    select gpu_uuid, source
    from shown
    group by gpu_uuid, source
    having
        coalesce(max(xid_code) > 0, false)
        or coalesce(max(ecc_uncorrected_count) > min(ecc_uncorrected_count), false)
        or coalesce(max(row_remap_uncorrectable_count) > min(row_remap_uncorrectable_count), false)
        or coalesce(max(row_remap_failure) > 0, false)
),

signals as (
    select
        shown.ts,
        shown.node,
        shown.gpu_uuid,
        shown.source,
        shown.model,
        unnest([
            {'kind': 'xid', 'value': shown.xid_code},
            {'kind': 'ecc_uncorrected', 'value': shown.ecc_uncorrected_count},
            {'kind': 'row_remap_pending', 'value': shown.row_remap_uncorrectable_count},
            {'kind': 'row_remap_failure', 'value': shown.row_remap_failure}
        ]) as signal
    from shown
    inner join suspects using (gpu_uuid, source)
),

followed as (
    select
        ts,
        node,
        gpu_uuid,
        source,
        model,
        signal.kind as kind,
        signal.value as value,
        lag(signal.value) over same as before,
        lag(ts) over same as before_at
    from signals
    where signal.value is not null
    window same as (partition by gpu_uuid, source, signal.kind order by ts)
),

-- The last code that each card is known to have shown before the window: one that it still shows is no news.
known_codes as (
    select gpu_uuid, max(ts) as ts, arg_max(code, ts) as code
    from fault
    where kind = 'xid' and gpu_uuid <> '' and ts < :from_at::timestamptz
    group by gpu_uuid
),

told as (
    select ts, node, gpu_uuid, vendor, kind, code, source, detail, count as event_count, true as is_begin_known, true as is_told
    from fault_event
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
    union all
    select
        condition.from_at as ts,
        coalesce(case when condition.subject_kind = 'node' then condition.subject end, card.node, '') as node,
        case when condition.subject_kind = 'gpu' then condition.subject else '' end as gpu_uuid,
        'nvidia' as vendor,
        case when condition.condition = 'gpu_lost' then 'gpu_lost' else 'xid' end as kind,
        case when condition.condition = 'gpu_lost' then '' else regexp_extract(condition.reason, '(?i)xid\D*(\d+)', 1) end as code,
        condition.source,
        condition.reason as detail,
        1 as event_count,
        true as is_begin_known,
        true as is_told
    from condition
    left join (select gpu_uuid, arg_max(node, from_at) as node from asset group by gpu_uuid) as card
        on condition.subject = card.gpu_uuid
    where
        condition.from_at >= :from_at::timestamptz
        and condition.from_at < :to_at::timestamptz
        and (
            condition.condition = 'gpu_lost'
            or (condition.condition = 'fatal_xid' and regexp_matches(coalesce(condition.reason, ''), '(?i)xid\D*\d'))
        )
),

-- Codes that others than the gauge told, of the window and before it.
coded as (
    select gpu_uuid, code, ts
    from told
    where kind = 'xid' and gpu_uuid <> ''
    union
    select gpu_uuid, code, ts
    from fault
    where kind = 'xid' and gpu_uuid <> '' and is_told and ts < :from_at::timestamptz
),

-- The last telling of the same code before each edge of the gauge.
announced as (
    select
        followed.*,
        coded.ts as announced_at
    from followed
    asof left join coded
        on
            followed.gpu_uuid = coded.gpu_uuid
            and followed.kind = 'xid'
            and followed.value::varchar = coded.code
            and followed.ts >= coded.ts
),

-- An edge after a silence in which somebody told the code is that fault, seen late: it stands at the time of that.
edges as (
    select
        case
            when followed.announced_at > followed.before_at and followed.ts - followed.before_at > interval 5 minute
                then followed.announced_at
            else followed.ts
        end as ts,
        followed.node,
        followed.gpu_uuid,
        coalesce(gpu_model.vendor, 'nvidia') as vendor,
        followed.kind,
        case when followed.kind = 'xid' then followed.value::varchar else '' end as code,
        followed.source,
        null::varchar as detail,
        case
            when followed.kind in ('xid', 'row_remap_failure') then 1
            when followed.value < followed.before then followed.value
            else followed.value - followed.before
        end as event_count,
        followed.before is not null as is_begin_known,
        false as is_told
    from announced as followed
    left join known_codes using (gpu_uuid)
    left join gpu_model on followed.model = gpu_model.model
    where
        followed.ts >= :from_at::timestamptz
        and followed.value > 0
        and case
            when followed.before is not null and followed.kind = 'ecc_uncorrected' then followed.value <> followed.before
            when followed.before is not null and followed.kind = 'row_remap_pending' then followed.value > followed.before
            when followed.before is not null then followed.value <> followed.before
            when followed.kind = 'xid' then known_codes.code is distinct from followed.value::varchar
            else followed.kind = 'row_remap_failure'
        end
),

-- A port that was up and is down, or that counts more downs than before. Its `code` is the port: those of a node are told apart.
followed_ports as (
    select
        ts,
        node,
        device || '/' || port as code,
        source,
        state,
        link_downed_count,
        lag(state) over of_port as state_before,
        lag(link_downed_count) over of_port as count_before
    from link_reading
    where ts >= :from_at::timestamptz - interval 1 hour and ts < :to_at::timestamptz
    window of_port as (partition by node, device, port, source order by ts)
),

downs as (
    select
        ts,
        node,
        '' as gpu_uuid,
        'nvidia' as vendor,
        'fabric' as kind,
        code,
        source,
        case
            when state_before = 'active' and state in ('down', 'init', 'armed') then 'the port went from active to ' || state
            else 'the port counts ' || (link_downed_count - count_before) || ' more times down'
        end as detail,
        case when link_downed_count > count_before then link_downed_count - count_before else 1 end as event_count,
        true as is_begin_known,
        false as is_told
    from followed_ports
    where
        ts >= :from_at::timestamptz
        and (
            (state_before = 'active' and state in ('down', 'init', 'armed'))
            or coalesce(link_downed_count > count_before, false)
        )
),

tellings as (
    select * from edges
    union all by name
    select * from downs
    union all by name
    select * from told
),

marked as (
    select
        *,
        case
            when ts - lag(ts) over same <= interval 5 minute then 0
            else 1
        end as is_new
    from tellings
    window same as (partition by case when gpu_uuid = '' then node else '' end, gpu_uuid, kind, code order by ts)
),

numbered as (
    select
        *,
        sum(is_new) over (partition by case when gpu_uuid = '' then node else '' end, gpu_uuid, kind, code order by ts rows unbounded preceding) as run
    from marked
)

select
    min(ts) as ts,
    max(ts) as last_at,
    -- Not every telling knows the node: a condition of a card that no inventory has yet does not.
    coalesce(arg_min(node, ts) filter (where node <> ''), '') as node,
    gpu_uuid,
    arg_min(vendor, ts) as vendor,
    kind,
    code,
    sum(event_count)::bigint as event_count,
    list_sort(list(distinct source)) as sources,
    arg_max(detail, ts) filter (where detail is not null) as detail,
    bool_or(is_begin_known) as is_begin_known,
    bool_or(is_told) as is_told
from numbered
group by case when gpu_uuid = '' then node else '' end, gpu_uuid, kind, code, run;
