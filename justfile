# Short names for what is typed often; each is one command, so that `just` is not needed.

# The main job, shown.
demo:
    cargo run -- demo

# Every test, and what they need.
test *arguments:
    .ci/test {{arguments}}

# What must hold before a change lands.
gate:
    .ci/run

# Format, lints, shape, unit and wire tests: some minutes on a warm build.
quick:
    cargo fmt --all --check
    cargo clippy --locked --all-targets --profile test -- -D warnings
    cargo test --locked --lib --test shape --test wire

# The shape of the code, in numbers with their limits: circles of files, lengths, names, prose.
shape:
    cargo test --locked --quiet --test shape -- --nocapture

# What users do, measured through the gateway and its peers (docs/benchmarks.md); `just lab --help`.
lab *arguments:
    cargo bench --locked --bench lab -- {{arguments}}

# What an exchange costs in instructions, allocations and connections, held to benches/lab/counts.toml;
# `just counts --bless` writes that anew.
counts *arguments:
    cargo test --locked --bench lab -- --check {{arguments}}

# The expected words of tests/compile_fail, written anew.
compile-fail:
    COMPILE_FAIL=overwrite cargo test --test compile_fail

# One fuzz target (`ls fuzz/targets`), for so many seconds.
fuzz target='sigv4_chunks' seconds='60':
    .ci/fuzz {{seconds}} {{target}}

# A real tailnet: headscale and tailscaled, built by Go, in networks of their own (as root; ten minutes the first time).
tailnet:
    cargo build --locked
    tests/tailnet/run
