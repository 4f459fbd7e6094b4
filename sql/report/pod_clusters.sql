-- name: pod_clusters(uids)
-- Of which cluster the warehouse knows the pods with the given uids: a uid is never given twice, so that another name is the same cluster.
-- Grain: one row per pod.
-- Columns: uid varchar, cluster varchar, namespace varchar, pod varchar
-- Reads: pod
-- Units: none
-- Ignores: uids that are not known. Uids are given with commas between them.
-- Order: uid
select uid, cluster, namespace, pod
from pod
where list_contains(string_split(:uids, ','), uid)
order by uid;
