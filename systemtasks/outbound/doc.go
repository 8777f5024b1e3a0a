// Package outbound is the only door of the runner to other hosts: a guarded dialer, and an HTTP client on top of it.
//
// What it keeps (contract 2.6, 2.7, X17, X18):
//
//   - The address that is checked is the one connected to: the check sits in the dialer, after the name is resolved, so a name
//     that changes its address between two look-ups gains nothing. Connections of the three kinds of trust (declared Targets,
//     everything else, and calls that must not share a connection) stand in pools of their own, so that no call rides on a
//     connection it could not have opened itself.
//   - A request is sent at most once for each hop: the client never retries, neither does the transport beneath it. Only the
//     durable retry policy does.
//   - Redirects are followed here, hop by hop, each checked as a URI of its own; headers go no further than their own origin.
//   - Proxies and other settings of the environment are not read.
//
// The package holds no global state. A Client is safe for concurrent use.
package outbound
