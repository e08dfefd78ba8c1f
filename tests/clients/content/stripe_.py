"""The Stripe SDK: refunds, below and above what policy allows."""

import os

import stripe

stripe.api_key = os.environ["STRIPE_API_KEY"]
stripe.max_network_retries = 0
# It brings roots of its own, and asks for no variable.
stripe.ca_bundle_path = os.environ["SSL_CERT_FILE"]
assert stripe.Refund.create(charge="ch_3Nx", amount=500).status == "succeeded"
for asked in ({"amount": 6000}, {}):
    try:
        stripe.Refund.create(charge="ch_3Nx", **asked)
    # The SDK cannot read a refusal whose `error` is a text; that nothing was sent is seen at the origin.
    except (stripe.StripeError, AttributeError):
        continue
    raise AssertionError(f"{asked} was allowed")
print("ok stripe")
