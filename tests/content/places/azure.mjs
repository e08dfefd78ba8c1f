// Microsoft's MSAL: an application's secret in the form of the token endpoint.
import assert from "node:assert";
import { ConfidentialClientApplication } from "@azure/msal-node";

const client = new ConfidentialClientApplication({
  auth: {
    clientId: "22222222-2222-3333-4444-555555555555",
    authority: "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555",
    clientSecret: process.env.AZURE_CLIENT_SECRET,
  },
});
const token = await client.acquireTokenByClientCredential({ scopes: ["https://graph.microsoft.com/.default"] });
assert.ok(token.accessToken);
console.log("ok azure");
