-- name: basis_span()!
-- An empty ledger of this connection's own, that lies over the stored one.
-- Grain: one row per span.
-- Reads: state_span
-- Writes: state_span
-- Units: those of state_span
-- Ignores: nothing.
create or replace temp table state_span as
select *
from state_span
where false;
