-- What ports of network adapters told of themselves. Grain: (node, device, port, source, ts).
create table link_reading (
    ts timestamptz not null,
    node varchar not null,
    device varchar not null,
    port varchar not null,
    source varchar not null,
    interval_seconds double,
    link_layer varchar not null,
    state varchar not null,
    physical_state varchar not null,
    rate_bits_per_second double,
    sent_bytes bigint,
    received_bytes bigint,
    sent_packets bigint,
    received_packets bigint,
    wait_ticks bigint,
    symbol_errors bigint,
    received_errors bigint,
    sent_discards bigint,
    link_downed_count bigint,
    link_recovery_count bigint,
    congestion_sent_packets bigint,
    congestion_handled_packets bigint,
    out_of_sequence_packets bigint,
    sequence_errors bigint,
    ack_timeouts bigint,
    retransmits bigint,
    at_least varchar not null
);

-- By how much a port's counter rose: what is less than before began anew, and counts whole. NULL where either is not
-- told, and where the counter stands, or stood, at the end of its range (`is_bound`).
create macro link_increase(now_told, told_before, is_bound) as
case when is_bound then null when now_told >= told_before then now_told - told_before when told_before is not null then now_told end;

-- Bytes that a port can have carried: up to 5 % above its rate are clocks that do not agree, and count as its rate; more
-- is no measurement (NULL).
create macro link_bytes(increase, rate_bits_per_second, elapsed_seconds) as
case
    when rate_bits_per_second is null or rate_bits_per_second = 0 or increase <= rate_bits_per_second / 8 * elapsed_seconds then increase
    when increase <= 1.05 * rate_bits_per_second / 8 * elapsed_seconds then rate_bits_per_second / 8 * elapsed_seconds
end;

-- What each port did from one reading of it (`before_at`) to the next, of the later readings in [from_at, to_at).
-- Grain: (node, device, port, ts), from one source: the one that told most of the port in the hour.
-- Counters are here increases over `elapsed_seconds`. Readings further apart than three intervals make no step.
create macro link_step(from_at, to_at) as table
with near as (
    select
        *,
        lag(ts) over of_port as before_at,
        lag(at_least) over of_port as at_least_before,
        lag(sent_bytes) over of_port as sent_bytes_before,
        lag(received_bytes) over of_port as received_bytes_before,
        lag(wait_ticks) over of_port as wait_ticks_before,
        lag(symbol_errors) over of_port as symbol_errors_before,
        lag(received_errors) over of_port as received_errors_before,
        lag(sent_discards) over of_port as sent_discards_before,
        lag(link_downed_count) over of_port as link_downed_count_before,
        lag(congestion_sent_packets) over of_port as congestion_sent_packets_before,
        lag(congestion_handled_packets) over of_port as congestion_handled_packets_before,
        lag(out_of_sequence_packets) over of_port as out_of_sequence_packets_before,
        lag(sequence_errors) over of_port as sequence_errors_before,
        lag(ack_timeouts) over of_port as ack_timeouts_before,
        lag(retransmits) over of_port as retransmits_before
    from link_reading
    where ts >= from_at - interval 1 hour and ts < to_at
    window of_port as (partition by node, device, port, source order by ts)
),

pairs as (
    select
        *,
        epoch_us(ts - before_at) / 1e6 as elapsed_seconds,
        at_least || ',' || at_least_before as bound,
        date_trunc('hour', ts) as hour_at
    from near
    where ts >= from_at and epoch_us(ts - before_at) / 1e6 <= 3 * coalesce(interval_seconds, 60)
),

steps as (
    select
        hour_at,
        ts,
        before_at,
        elapsed_seconds,
        node,
        device,
        port,
        source,
        state,
        rate_bits_per_second,
        link_bytes(link_increase(sent_bytes, sent_bytes_before, contains(bound, 'sent_bytes')), rate_bits_per_second, elapsed_seconds) as sent_bytes,
        link_bytes(link_increase(received_bytes, received_bytes_before, contains(bound, 'received_bytes')), rate_bits_per_second, elapsed_seconds) as received_bytes,
        link_increase(wait_ticks, wait_ticks_before, contains(bound, 'wait_ticks')) as wait_ticks,
        link_increase(symbol_errors, symbol_errors_before, contains(bound, 'symbol_errors')) as symbol_errors,
        link_increase(received_errors, received_errors_before, contains(bound, 'received_errors')) as received_errors,
        link_increase(sent_discards, sent_discards_before, contains(bound, 'sent_discards')) as sent_discards,
        link_increase(link_downed_count, link_downed_count_before, contains(bound, 'link_downed_count')) as link_downed_count,
        link_increase(congestion_sent_packets, congestion_sent_packets_before, false) as congestion_sent_packets,
        link_increase(congestion_handled_packets, congestion_handled_packets_before, false) as congestion_handled_packets,
        link_increase(out_of_sequence_packets, out_of_sequence_packets_before, false) as out_of_sequence_packets,
        link_increase(sequence_errors, sequence_errors_before, false) as sequence_errors,
        link_increase(ack_timeouts, ack_timeouts_before, false) as ack_timeouts,
        link_increase(retransmits, retransmits_before, false) as retransmits
    from pairs
),

counted as (
    select *, count(sent_bytes) over (partition by node, device, port, source, hour_at) as told_count
    from steps
)

select * exclude (told_count)
from counted
qualify source = first_value(source) over (partition by node, device, port, hour_at order by told_count desc, source);
