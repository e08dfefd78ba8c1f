"""The Stripe SDK: a budget of one refund, and a payout that a person is asked about while nobody watches."""

import os, time

import stripe

stripe.api_key = os.environ["STRIPE_API_KEY"]
stripe.max_network_retries = 3
# It brings roots of its own, and asks for no variable.
stripe.ca_bundle_path = os.environ["SSL_CERT_FILE"]
assert stripe.Refund.create(charge="ch_3Nx", amount=500).status == "succeeded"
for name, act in (("refund", lambda: stripe.Refund.create(charge="ch_3Ny", amount=500)), ("payout", lambda: stripe.Payout.create(amount=5, currency="usd"))):
    began = time.monotonic()
    try:
        act()
    except (stripe.StripeError, AttributeError) as error:
        # A card that was declined is another thing.
        assert not isinstance(error, stripe.CardError), error
        print(f"stripe, {name}: {type(error).__name__}: {error}")
        assert time.monotonic() - began < 3
        continue
    raise AssertionError(f"a {name} was allowed")
print("ok stripe")
