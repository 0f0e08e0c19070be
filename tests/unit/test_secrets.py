"""Secrets are known by their meaning: a spec's settings have none, and no message shows one."""

import pytest
from pydantic import ValidationError

from skewless.errors import without_secrets
from skewless.spec import SparkSettings

SECRETS = {
    "spark.executorEnv.AZURE_STORAGE_ACCOUNT_KEY": "x",
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "x",
    "spark.hadoop.fs.azure.account.key.lake.file.core.windows.net": "x",
    "spark.hadoop.fs.azure.sas.box.lake.blob.core.windows.net": "x",
    "spark.yarn.appMasterEnv.DB_PWD": "1234",
    "spark.executorEnv.AUTHORIZATION": "x",
    "spark.a": "redis://h/0?password=x",
    "spark.b": "https://lake.example/box?sv=2024&sig=x",
    "spark.c": "https://name@host/",
    "spark.d": "jdbc:postgresql://h/db?user=u&pwd=x",
    "spark.driver.extraJavaOptions": "-Dlog=a -Djavax.net.ssl.trustStorePassword=x",
    "spark.e": "Authorization: Bearer x",
    "spark.f": '{"apiKey": "x"}',
}
PLAIN = {
    "spark.sql.collation.allowInMapKeys": "LAST_WIN",
    "spark.io.encryption.keySizeBits": "256",
    "spark.authenticate": "true",
    "spark.security.credentials.hive.enabled": "false",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "a.b.Provider",
    "spark.hadoop.fs.azure.account.auth.type.lake.dfs.core.windows.net": "OAuth",
    "spark.hadoop.fs.azure.sas.token.provider.type.lake": "a.b.Provider",
    "spark.driver.extraJavaOptions": "-Djava.security.auth.login.config=/etc/jaas.conf -Dlog4j.configuration=file:/x",
    "spark.jars.packages": "org.apache.spark:spark-hadoop-cloud_2.13:4.3.0",
    "spark.executor.defaultJavaOptions": "-Xloggc:{{EXECUTOR_ID}}.gc",
    "spark.eventLog.dir": "s3a://lake/events",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_setting_that_is_a_secret_or_has_one_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="no secrets: they belong into the connection"):
        SparkSettings(conf={name: SECRETS[name]})


@pytest.mark.parametrize("name", PLAIN)
def test_what_only_sounds_like_a_secret_is_a_setting(name: str) -> None:
    assert SparkSettings(conf={name: PLAIN[name]}).conf == {name: PLAIN[name]}


@pytest.mark.parametrize("parameter", ["pwd", "sas", "auth", "key", "X-Amz-Signature", "AccountKey", "user_pass"])
def test_no_parameter_of_a_url_that_is_a_secret_is_shown(parameter: str) -> None:
    assert without_secrets(f"https://h/a?b=1&{parameter}=x;y") == f"https://h/a?b=1&{parameter}=***;y"
