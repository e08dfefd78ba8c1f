"""Drives standin.py by each vendor's own client: vendors.py FOLDER TLS-PORT PORT VALUE. Ends with `vendors: all`."""

import json
import os
import socket
import sys

folder, tls, plain, value = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.environ["REQUESTS_CA_BUNDLE"] = f"{folder}/ca.pem"
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve("127.0.0.1", *rest, **more)

import boto3
import requests
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.keyvault.secrets import SecretClient
from botocore.exceptions import ClientError
from google.api_core.exceptions import Forbidden, NotFound
from google.cloud.secretmanager_v1.services.secret_manager_service import SecretManagerServiceClient
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import SecretManagerServiceRestTransport
from google.oauth2 import service_account
from onepasswordconnectsdk.client import new_client

base = f"http://127.0.0.1:{plain}"


def mode(name):
    requests.post(f"{base}/_set", json={"mode": name}, timeout=10).raise_for_status()


def refused(name, read, error, words=""):
    mode(name)
    try:
        read()
    except error as why:
        assert words in str(why), (name, str(why))
    else:
        raise AssertionError(f"{name} was not refused")
    finally:
        mode("good")


with open(f"{folder}/account.json") as file:
    info = json.load(file)
info["token_uri"] = f"{base}/token"
credentials = service_account.Credentials.from_service_account_info(info, scopes=["https://www.googleapis.com/auth/cloud-platform"])
transport = SecretManagerServiceRestTransport(host=f"127.0.0.1:{plain}", url_scheme="http", credentials=credentials)
google = SecretManagerServiceClient(transport=transport)
name = "projects/app/secrets/token/versions/latest"
read = lambda: google.access_secret_version(name=name, retry=None).payload.data.decode()
assert read() == value
refused("denied", read, Forbidden)
refused("gone", read, NotFound)


class Login:
    def get_token(self, *scopes, **_):
        form = {"grant_type": "client_credentials", "client_id": "app", "client_secret": "CANARY-client-secret", "scope": " ".join(scopes)}
        return AccessToken(requests.post(f"{base}/tenant/oauth2/v2.0/token", data=form, timeout=10).json()["access_token"], 2**31)


azure = SecretClient(vault_url=f"https://team.vault.azure.net:{tls}", credential=Login(), verify_challenge_resource=False, retry_total=0)
read = lambda: azure.get_secret("token").value
assert read() == value
refused("denied", read, HttpResponseError, "Forbidden")
refused("gone", read, ResourceNotFoundError, "SecretNotFound")

connect = new_client(base, "CANARY-connect-token")
item = connect.get_item("GitHub", "Work")
assert [field.value for field in item.fields if field.label == "token"] == [value]

keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "x" * 40, "region_name": "eu-west-1", "endpoint_url": base}
secrets, parameters = boto3.client("secretsmanager", **keys), boto3.client("ssm", **keys)
read = lambda: json.loads(secrets.get_secret_value(SecretId="app")["SecretString"])["token"]
assert read() == value
refused("gone", read, secrets.exceptions.ResourceNotFoundException)
refused("denied", read, ClientError, "AccessDenied")
read = lambda: parameters.get_parameter(Name="/app/token", WithDecryption=True)["Parameter"]["Value"]
assert read() == value
refused("gone", read, parameters.exceptions.ParameterNotFound)
print("vendors: all")
