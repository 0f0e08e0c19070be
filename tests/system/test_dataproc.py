"""A step by Dataproc, against a stand-in for its gRPC: Google's own provider, which holds back others, laid aside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages import BIN

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

#: What its operator imports, of all that the provider asks for.
ASIDE = (
    "apache-airflow-providers-google==22.8.0", "gcloud-aio-auth==5.6.0", "google-api-core==2.44.0",
    "google-api-python-client==2.202.0", "google-auth==2.63.0", "google-auth-httplib2==0.4.4",
    "google-cloud-dataproc==5.32.0", "google-cloud-secret-manager==2.32.0", "grpc-google-iam-v1==0.14.6",
    "httplib2==0.32.1", "proto-plus==1.29.0", "pyasn1==0.6.5", "pyasn1-modules==0.4.2", "uritemplate==4.2.0",
)  # fmt: skip


def test_dataproc_has_one_batch_for_two_tries_and_another_after_its_end(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    subprocess.run(
        [BIN / "uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", aside, *ASIDE],
        check=True,
    )  # fmt: skip
    path = os.pathsep.join([str(aside), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "SKEWLESS_ROOT": tmp_path.as_uri()}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("two batches")


def main() -> None:
    """What the test runs in a process that has the provider."""
    from concurrent.futures import ThreadPoolExecutor
    from functools import cached_property
    from typing import Any

    import grpc
    from airflow.providers.google.cloud.hooks.dataproc import DataprocHook
    from airflow.providers.google.cloud.operators.dataproc import DataprocCreateBatchOperator
    from google.cloud import dataproc_v1 as api
    from google.cloud.dataproc_v1.services.batch_controller.transports import BatchControllerGrpcTransport
    from google.longrunning.operations_pb2 import Operation
    from google.protobuf.any_pb2 import Any as Packed

    from skewless.run.directory import RunDirectory
    from skewless_airflow.runners import dataproc
    from tests.airflow.test_remote_runners import PACKAGE, WORDS, deferred, resumed, stepped

    batches: dict[str, Any] = {}

    class Api(grpc.GenericRpcHandler):
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            handler = grpc.unary_unary_rpc_method_handler
            if call.method.endswith("/CreateBatch"):
                return handler(self.create, api.CreateBatchRequest.deserialize, Operation.SerializeToString)
            return handler(self.get, api.GetBatchRequest.deserialize, api.Batch.serialize)

        def create(self, request: Any, context: grpc.ServicerContext) -> Operation:
            if request.batch_id in batches:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, request.batch_id)
            batch = batches[request.batch_id] = request.batch
            batch.name, batch.state = f"{request.parent}/batches/{request.batch_id}", api.Batch.State.RUNNING
            metadata = Packed()
            metadata.Pack(api.BatchOperationMetadata.pb(api.BatchOperationMetadata(batch=batch.name)))
            return Operation(name="o", metadata=metadata)

        def get(self, request: Any, _context: grpc.ServicerContext) -> Any:
            return batches[request.name.rpartition("/")[2]]

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Api()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    class Hook(DataprocHook):
        def get_batch_client(self, *_: Any, **__: Any) -> api.BatchControllerClient:
            channel = grpc.insecure_channel(f"127.0.0.1:{port}")
            return api.BatchControllerClient(transport=BatchControllerGrpcTransport(channel=channel))

    class OnThisMachine(DataprocCreateBatchOperator):
        @cached_property
        def hook(self) -> DataprocHook:
            return Hook(gcp_conn_id=self.gcp_conn_id)

    sys.modules["on_this_machine"] = sys.modules["__main__"]
    globals()["OnThisMachine"] = OnThisMachine
    dataproc.OPERATOR = "on_this_machine:OnThisMachine"
    os.environ["AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT"] = "google-cloud-platform://"

    run = RunDirectory(f"{os.environ['SKEWLESS_ROOT']}/runs/words/night")
    environment = {"execution_config": {"subnetwork_uri": "night"}}
    submit = {
        "runner": "dataproc", "package": PACKAGE, "region": "europe-west1", "project_id": "p",
        "batch": {"environment_config": environment},
    }  # fmt: skip
    first, again = (deferred(stepped(run, submit, {"spark.a": "b"})) for _ in range(2))
    ((name, batch),) = batches.items()
    assert {begun.trigger.serialize()[1]["batch_id"] for begun in (first, again)} == {name}
    assert batch.pyspark_batch.main_python_file_uri == f"{PACKAGE}/steps.py"
    assert list(batch.pyspark_batch.args) == [*WORDS, f"stage-1-{name[-14:-6]}"]
    assert list(batch.pyspark_batch.archive_uris) == [f"{PACKAGE}/environment.tar.gz#environment"]
    assert batch.runtime_config.properties["spark.a"] == "b"
    assert batch.environment_config.execution_config.subnetwork_uri == "night"
    event = {"batch_id": name, "batch_state": "FAILED", "batch_state_message": "no machine"}
    assert "no machine" in resumed(stepped(run, submit), first, event)
    deferred(stepped(run, submit))
    assert [one[-2:] for one in batches] == ["-1", "-2"]
    print("two batches")  # noqa: T201  # for the test


if __name__ == "__main__":
    main()
