"""Azure's SDKs with the account's key: blobs, queues, tables, and a URL that is signed for itself (SAS)."""

import os, secrets, urllib.request
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobSasPermissions, BlobServiceClient, generate_blob_sas
from azure.storage.queue import QueueServiceClient

from common import content, run, same

account, key = os.environ["SIGNING_AZURE_ACCOUNT"], os.environ["AZURE_STORAGE_KEY"]
table_key = os.environ["AZURE_TABLES_KEY"]
more = {"retry_total": 0, "connection_verify": os.environ["SSL_CERT_FILE"]}
blobs = BlobServiceClient(os.environ["SIGNING_AZURE_BLOB"], {"account_name": account, "account_key": key}, **more)
queues = QueueServiceClient(os.environ["SIGNING_AZURE_QUEUE"], {"account_name": account, "account_key": key}, **more)
tables = TableServiceClient(os.environ["SIGNING_AZURE_TABLE"], credential=AzureNamedKeyCredential(account, table_key), **more)
# The emulator keeps what the run by another way made.
RUN = secrets.token_hex(4)
NAMES = ["plain", "with space", "plus+sign", "per%cent", "ünïcode/日本語", "a=b&c;d@e"]


def blob():
    container = blobs.get_container_client(f"blobs-{RUN}")
    container.create_container()
    for name in NAMES:
        client = container.get_blob_client(name)
        client.upload_blob(name.encode(), metadata={"who": "judge"}, overwrite=True)
        same(client.download_blob().readall(), name.encode())
    same(sorted(item.name for item in container.list_blobs()), sorted(NAMES))
    whole = content(9_000_000)
    large = container.get_blob_client("large")
    large.upload_blob(whole, overwrite=True, max_concurrency=2)
    same(large.download_blob(offset=1000, length=500).readall(), whole[1000:1500])
    same(large.download_blob().readall() == whole, True)
    large.delete_blob()
    try:
        large.get_blob_properties()
    except ResourceNotFoundError:
        return
    raise AssertionError("what was deleted is there")


def queue():
    client = queues.create_queue(f"queue-{RUN}")
    client.send_message("for the judge <&>")
    found = next(iter(client.receive_messages()))
    same(found.content, "for the judge <&>")
    client.delete_message(found)
    same(list(client.peek_messages()), [])


def table():
    client = tables.create_table(f"judges{RUN}")
    entity = {"PartitionKey": "with space", "RowKey": "ü", "n": 7}
    client.create_entity(entity)
    same(dict(client.get_entity("with space", "ü")), entity)
    same([dict(item) for item in client.query_entities("n eq 7")], [entity])
    client.delete_entity(entity)


def signed_url():
    """Who holds the URL holds what it says: the account's key is in none of it."""
    name, id, secret = f"blobs-{RUN}", urlsplit(blobs.url).hostname.partition(".")[0], os.environ["AZURE_SAS_KEY"]
    blobs.get_blob_client(name, "by url ü").upload_blob(b"by url", overwrite=True)
    until = datetime.now(timezone.utc) + timedelta(minutes=5)
    query = generate_blob_sas(id, name, "by url ü", account_key=secret, permission=BlobSasPermissions(read=True), expiry=until)
    url = blobs.get_blob_client(name, "by url ü").url + "?" + query
    same(urllib.request.urlopen(url, timeout=30).read(), b"by url")


run({"azure blob": blob, "azure queue": queue, "azure table": table, "azure sas": signed_url})
