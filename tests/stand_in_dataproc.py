"""A stand-in for Dataproc's batches by gRPC, and the provider's operator and trigger that speak to it.

Google's provider holds back others, so a test lays it aside (``ASIDE``), and imports this in a process that has it.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import grpc
from airflow.providers.google.cloud.hooks.dataproc import DataprocAsyncHook, DataprocHook
from airflow.providers.google.cloud.operators.dataproc import DataprocCreateBatchOperator
from airflow.providers.google.cloud.triggers import dataproc as triggers
from google.cloud import dataproc_v1 as api
from google.cloud.dataproc_v1.services.batch_controller.transports import (
    BatchControllerGrpcAsyncIOTransport,
    BatchControllerGrpcTransport,
)
from google.longrunning.operations_pb2 import CancelOperationRequest, Operation
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.empty_pb2 import Empty

from skewless_airflow.runners import dataproc
from tests.stand_in_services import Application, Service

_ADDRESS = "DATAPROC_ADDRESS"
_STATE = api.Batch.State


class Dataproc(Service, grpc.GenericRpcHandler):
    """Batches by their ids.

    Args:
        watch: is told of each request before and after it is answered.
    """

    submit = {  # noqa: RUF012
        "runner": "dataproc", "region": "europe-west1", "project_id": "p", "polling_interval_seconds": 1,
        "batch": {"environment_config": {"execution_config": {"subnetwork_uri": "night"}}},
    }  # fmt: skip

    def __init__(
        self, begun: Callable[[Application], object] = lambda _: None, watch: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(begun)
        self._watch = watch

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        kinds: dict[str, tuple[Any, Any, Any]] = {
            "CreateBatch": (self._create, api.CreateBatchRequest.deserialize, Operation.SerializeToString),
            "GetBatch": (self._get, api.GetBatchRequest.deserialize, api.Batch.serialize),
            "CancelOperation": (self._cancel, CancelOperationRequest.FromString, Empty.SerializeToString),
        }
        name = call.method.rpartition("/")[2]
        act, read, write = kinds[name]

        def watched(request: Any, context: grpc.ServicerContext) -> Any:
            self._watch(f"before {name}")
            answer = act(request, context)
            self._watch(f"after {name}")
            return answer

        return grpc.unary_unary_rpc_method_handler(watched, read, write)

    def _create(self, request: Any, context: grpc.ServicerContext) -> Operation:
        if self.named(request.batch_id) is not None:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, request.batch_id)
        request.batch.name = f"{request.parent}/batches/{request.batch_id}"
        request.batch.operation = request.batch_id
        self.begin(request.batch_id, request.batch, list(request.batch.pyspark_batch.args))
        metadata = Packed()
        metadata.Pack(api.BatchOperationMetadata.pb(api.BatchOperationMetadata(batch=request.batch.name)))
        return Operation(name="o", metadata=metadata)

    def _get(self, request: Any, context: grpc.ServicerContext) -> Any:
        if (batch := self.named(request.name.rpartition("/")[2])) is None:
            context.abort(grpc.StatusCode.NOT_FOUND, request.name)
            raise AssertionError
        batch.body.state = _STATE[batch.state("RUNNING", "SUCCEEDED", "CANCELLED" if batch.code == -1 else "FAILED")]
        return batch.body

    def _cancel(self, request: Any, _context: grpc.ServicerContext) -> Empty:
        batch = self.named(request.name)
        assert batch is not None
        batch.code = -1
        return Empty()

    @contextmanager
    def served(self) -> Iterator[str]:
        """The address of its server."""
        server = grpc.server(ThreadPoolExecutor(4), handlers=[self])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stop(None)

    def connection(self, host: str, port: int) -> dict[str, str]:
        return {_ADDRESS: f"{host}:{port}", "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": "google-cloud-platform://"}


class _Hook(DataprocHook):
    def get_batch_client(self, *_: Any, **__: Any) -> api.BatchControllerClient:
        channel = grpc.insecure_channel(os.environ[_ADDRESS])
        return api.BatchControllerClient(transport=BatchControllerGrpcTransport(channel=channel))


class _AsyncHook(DataprocAsyncHook):
    async def get_batch_client(self, *_: Any, **__: Any) -> api.BatchControllerAsyncClient:
        channel = grpc.aio.insecure_channel(os.environ[_ADDRESS])
        return api.BatchControllerAsyncClient(transport=BatchControllerGrpcAsyncIOTransport(channel=channel))


class OnThisMachine(DataprocCreateBatchOperator):
    @cached_property
    def hook(self) -> DataprocHook:
        return _Hook(gcp_conn_id=self.gcp_conn_id)


def on_this_machine() -> None:
    """Let our runner take the operator, and the provider's trigger the hook, of this machine."""
    dataproc.Operator = OnThisMachine
    triggers.DataprocAsyncHook = _AsyncHook
