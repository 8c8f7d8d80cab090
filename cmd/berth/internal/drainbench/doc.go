// Package drainbench measures drains of a running Berth: simulated workers that
// cooperate, sessions on one of them, and traffic that goes on meanwhile.
//
// It measures twice: as fast as Berth can, and at a pace that was asked for. All the
// while clients take turns on sessions that move under them, new sessions ask where
// to go, and whoever is refused follows the answer. Afterwards every session is
// loaded and held against what was acknowledged.
package drainbench
