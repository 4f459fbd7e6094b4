"""The kinds of objects that a server has: those built in, and those that a CustomResourceDefinition adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schedulers.fakes.apiserver.statuses import invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind as the API serves it. `versions` are the served ones, the preferred first; `group` is "" for the core.

    `with_status` are the versions that have a status subresource. `schemas` (by version) are those of a custom kind.
    """

    group: str
    plural: str
    kind: str
    versions: tuple[str, ...]
    is_namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    with_status: frozenset[str] = frozenset()
    is_custom: bool = False
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Group and plural."""
        return (self.group, self.plural)

    def api_version(self, version: str) -> str:
        """The `apiVersion` of this kind's objects in `version`."""
        return f"{self.group}/{version}" if self.group else version

    @property
    def storage(self) -> str:
        """The version that objects are kept in: the preferred one."""
        return self.versions[0]


_BUILT_IN = """
v1 Namespace namespaces ns cluster status
v1 Node nodes no cluster status
v1 PersistentVolume persistentvolumes pv cluster status
v1 Pod pods po namespaced status
v1 ResourceQuota resourcequotas quota namespaced status
v1 LimitRange limitranges limits namespaced -
v1 Service services svc namespaced status
v1 ConfigMap configmaps cm namespaced -
v1 Secret secrets - namespaced -
v1 Event events ev namespaced -
v1 ServiceAccount serviceaccounts sa namespaced -
v1 PersistentVolumeClaim persistentvolumeclaims pvc namespaced status
v1 PodTemplate podtemplates - namespaced -
v1 ReplicationController replicationcontrollers rc namespaced status
apps/v1 Deployment deployments deploy namespaced status
apps/v1 ReplicaSet replicasets rs namespaced status
apps/v1 StatefulSet statefulsets sts namespaced status
apps/v1 DaemonSet daemonsets ds namespaced status
apps/v1 ControllerRevision controllerrevisions - namespaced -
batch/v1 Job jobs - namespaced status
batch/v1 CronJob cronjobs cj namespaced status
autoscaling/v2 HorizontalPodAutoscaler horizontalpodautoscalers hpa namespaced status
policy/v1 PodDisruptionBudget poddisruptionbudgets pdb namespaced status
coordination.k8s.io/v1 Lease leases - namespaced -
storage.k8s.io/v1 StorageClass storageclasses sc cluster -
rbac.authorization.k8s.io/v1 ClusterRole clusterroles - cluster -
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings - cluster -
rbac.authorization.k8s.io/v1 Role roles - namespaced -
rbac.authorization.k8s.io/v1 RoleBinding rolebindings - namespaced -
scheduling.k8s.io/v1 PriorityClass priorityclasses pc cluster -
scheduling.k8s.io/v1beta1,v1alpha1 Workload workloads - namespaced -
scheduling.k8s.io/v1beta1,v1alpha1 PodGroup podgroups - namespaced status
resource.k8s.io/v1,v1beta2,v1beta1 DeviceClass deviceclasses - cluster -
resource.k8s.io/v1,v1beta2,v1beta1 ResourceSlice resourceslices - cluster -
resource.k8s.io/v1,v1beta2,v1beta1 ResourceClaim resourceclaims - namespaced status
resource.k8s.io/v1,v1beta2,v1beta1 ResourceClaimTemplate resourceclaimtemplates - namespaced -
apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions crd,crds cluster status
"""


def _built_in(line: str) -> Resource:
    api, kind, plural, short, scope, status = line.split()
    group, _, served = api.rpartition("/")
    versions = tuple(served.split(","))
    return Resource(
        group=group,
        plural=plural,
        kind=kind,
        versions=versions,
        is_namespaced=scope == "namespaced",
        singular=kind.lower(),
        short_names=() if short == "-" else tuple(short.split(",")),
        with_status=frozenset(versions) if status == "status" else frozenset(),
    )


def built_in(serves: Callable[[str], bool]) -> list[Resource]:
    """The kinds that come with the server, in the group versions for which `serves` is true ("v1", "batch/v1")."""
    kept = []
    for line in _BUILT_IN.strip().splitlines():
        resource = _built_in(line)
        versions = tuple(each for each in resource.versions if serves(resource.api_version(each)))
        if versions:
            kept.append(replace(resource, versions=versions, with_status=resource.with_status & set(versions)))
    return kept


def of_definition(definition: Mapping[str, Any], only: tuple[str, ...] = ()) -> Resource:
    """The kind that a CustomResourceDefinition (apiextensions.k8s.io/v1) defines; `only` some of its versions.

    The storage version is preferred where it is served. Raises ApiRefusal (422) for a definition that misses a part.
    """
    name = str(definition.get("metadata", {}).get("name", ""))
    try:
        spec = definition["spec"]
        group, names = spec["group"], spec["names"]
        served = [each for each in spec["versions"] if each["served"] and (not only or each["name"] in only)]
        served.sort(key=lambda version: not version["storage"])
        schemas = {each["name"]: each["schema"]["openAPIV3Schema"] for each in served}
        if name != f"{names['plural']}.{group}":
            wanted = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
            raise invalid(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                name,
                [("FieldValueInvalid", "metadata.name", wanted)],
            )
        return Resource(
            group=group,
            plural=names["plural"],
            kind=names["kind"],
            versions=tuple(schemas),
            is_namespaced=spec["scope"] == "Namespaced",
            singular=names.get("singular") or names["kind"].lower(),
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            with_status=frozenset(each["name"] for each in served if "status" in each.get("subresources", {})),
            is_custom=True,
            schemas=schemas,
        )
    except KeyError as missing:
        error = ("FieldValueRequired", f"spec...{missing.args[0]}", "Required value")
        raise invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, [error]) from missing
