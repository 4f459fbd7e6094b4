-- name: fabric_by_node(from_at, to_at)
-- What the network adapters of each node carried, and what went wrong on them.
-- Grain: one row per node and hour.
-- Columns: hour_at timestamptz, node varchar, port_count bigint, active_port_count bigint, observed_seconds double,
--   sent_bytes_per_second double, received_bytes_per_second double, link_bytes_per_second double, use_ratio double,
--   wait_ticks_per_second double, symbol_errors bigint, received_errors bigint, sent_discards bigint, link_downed_count bigint,
--   congestion_packets bigint, out_of_sequence_packets bigint, retransmits bigint, source varchar
-- Reads: link_reading
-- Units: bytes per second of all ports, each the mean of what it told; `link_bytes_per_second`: what its active ports can carry one
--   way; `use_ratio`: of the busier way; `observed_seconds`: of the port that told most; counts are increases in the hour
-- Ignores: readings further apart than three intervals. NULL: no port told it, or its counter stands at the end of its range.
-- Order: hour_at, node
with ports as (
    select
        hour_at,
        node,
        device,
        port,
        min(source) as source,
        arg_max(state, ts) = 'active' as is_active,
        max(rate_bits_per_second) / 8 as link_bytes_per_second,
        sum(elapsed_seconds) as observed_seconds,
        sum(sent_bytes) / sum(elapsed_seconds) filter (where sent_bytes is not null) as sent_bytes_per_second,
        sum(received_bytes) / sum(elapsed_seconds) filter (where received_bytes is not null) as received_bytes_per_second,
        sum(wait_ticks) / sum(elapsed_seconds) filter (where wait_ticks is not null) as wait_ticks_per_second,
        sum(symbol_errors)::bigint as symbol_errors,
        sum(received_errors)::bigint as received_errors,
        sum(sent_discards)::bigint as sent_discards,
        sum(link_downed_count)::bigint as link_downed_count,
        (sum(congestion_sent_packets) + sum(congestion_handled_packets))::bigint as congestion_packets,
        sum(out_of_sequence_packets)::bigint as out_of_sequence_packets,
        sum(retransmits)::bigint as retransmits
    from link_step(:from_at::timestamptz, :to_at::timestamptz)
    group by hour_at, node, device, port
)

select
    hour_at,
    node,
    count(*) as port_count,
    count(*) filter (where is_active) as active_port_count,
    max(observed_seconds) as observed_seconds,
    sum(sent_bytes_per_second) as sent_bytes_per_second,
    sum(received_bytes_per_second) as received_bytes_per_second,
    sum(link_bytes_per_second) filter (where is_active) as link_bytes_per_second,
    greatest(sum(sent_bytes_per_second), sum(received_bytes_per_second))
    / nullif(sum(link_bytes_per_second) filter (where is_active), 0) as use_ratio,
    sum(wait_ticks_per_second) as wait_ticks_per_second,
    sum(symbol_errors)::bigint as symbol_errors,
    sum(received_errors)::bigint as received_errors,
    sum(sent_discards)::bigint as sent_discards,
    sum(link_downed_count)::bigint as link_downed_count,
    sum(congestion_packets)::bigint as congestion_packets,
    sum(out_of_sequence_packets)::bigint as out_of_sequence_packets,
    sum(retransmits)::bigint as retransmits,
    min(source) as source
from ports
group by hour_at, node
order by hour_at, node;
