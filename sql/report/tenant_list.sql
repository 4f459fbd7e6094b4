-- name: tenant_list()
-- Every tenant that is declared, or that the ledger, a queue's state or a finding names.
-- Grain: one row per tenant.
-- Columns: tenant varchar
-- Reads: tenant, ledger_hour, queue_state, finding
-- Units: none
-- Ignores: the empty tenant.
-- Order: tenant
with named as (
    select tenant from tenant
    union
    select distinct tenant from ledger_hour
    union
    select distinct tenant from queue_state
    union
    select distinct tenant from finding
)

select tenant
from named
where tenant <> ''
order by tenant;
