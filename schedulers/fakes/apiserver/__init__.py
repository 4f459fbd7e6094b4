"""A fake kube-apiserver: discovery, lists at a version, watches, writes, custom kinds, access rules, faults.

store = Store()
store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
with serve(store) as api:
    ...  # api.url, api.asked
"""

from schedulers.fakes.apiserver.access import Access, Subject
from schedulers.fakes.apiserver.app import Fault
from schedulers.fakes.apiserver.requests import Asked
from schedulers.fakes.apiserver.schemas import Schemas
from schedulers.fakes.apiserver.serving import Serving, serve
from schedulers.fakes.apiserver.statuses import ApiRefusal
from schedulers.fakes.apiserver.store import Store

__all__ = ["Access", "ApiRefusal", "Asked", "Fault", "Schemas", "Serving", "Store", "Subject", "serve"]
