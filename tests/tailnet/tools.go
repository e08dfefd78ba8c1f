//go:build tools

// The programs of the tailnet that tests/tailnet/run builds.
package tools

import (
	_ "github.com/juanfont/headscale/cmd/headscale"
	_ "tailscale.com/cmd/tailscale"
	_ "tailscale.com/cmd/tailscaled"
)
