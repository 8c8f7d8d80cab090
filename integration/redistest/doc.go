// Package redistest finds a Redis for the tests that need a real one.
//
// [Standalone] climbs a ladder and takes the first rung that holds:
//
//	BERTH_TEST_REDIS   a URL; a server that is named and does not answer fails the test
//	Docker             a container of [Image], through testcontainers-go
//	redis-server       a process of its own on a free loopback port
//	(none)             the test is skipped and says what was not tested
//
// Tests that must hurt the server ([Start]: kill -9, SIGSTOP, restart on the same
// data) and those that need [Cluster] begin at the third rung. [Docker] asks for a
// daemon and images. [NewProxy] stands between a client and a server and loses,
// delays or cuts what passes.
//
// BERTH_TEST_REQUIRE turns skips into failures: "redis" when no rung holds,
// "docker" when the daemon or an image is missing. CI sets both.
//
// Servers are shared by the tests of one binary when its TestMain calls [Main];
// without that every test starts and ends its own. A standalone server gives each
// test a database of its own, empty at the start; publish/subscribe channels and
// CONFIG reach across databases, so a test that needs those to itself says
// [Private]. A Cluster has one database: it is flushed and lent to one test (and
// its subtests) at a time.
//
// A running server keeps goroutines of this package and of testcontainers alive: a
// test that looks for leaked ones ignores those that are there when it begins.
//
// The promise that no rung is passed over in silence is held by TestClimb and
// TestMissing, the one that servers die with the test binary by TestOrphan.
package redistest
