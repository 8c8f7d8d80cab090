// Package services is Berth's HTTP API: for gateways, workers and operators.
//
// Handlers decode, call once, and answer or return an error; problem.go alone
// knows status codes, routes.go shows the whole API on one screen. What is
// decided is decided elsewhere: placements by package routing, writes by the
// store. What this package owns is the join of the two: a [Server] keeps an
// immutable snapshot of every pool (snapshots.go) and a bounded cache of
// bindings (bindings.go), so that a route on the warm path touches memory only.
//
// Contents, handles, incarnations and tokens never reach a log line or a metric;
// session ids only as digests.
package services
