// Package routing decides which instance should serve a session.
//
// Nothing here does I/O, reads a clock, logs or takes a lock. A [Ring] ranks
// the instances for a key, a [Snapshot] says which of them are usable now and
// how loaded they are, and [Decide] combines the two with the session's record
// into a [Decision] that carries its reason. [Hints] count what one replica
// placed since the loads were told, for keys that many sessions share. A [Tally]
// places many sessions against one snapshot, for drains and rebalances.
//
// What a snapshot says of an instance comes from the holder of the health lease,
// which keeps a [Circuit] for each of them, a [Watch] for the fleet and a [Ramp]
// for each pool. These are machines without a clock too: they are fed outcomes,
// heartbeats and probes with the time on the caller's monotonic clock, and read out
// once a round. The holder publishes what they say; the next one goes on from that.
//
// # The ring
//
// A member has 512 points at weight 100: the xxhash64 of its id and a number.
// The points are sorted once, off the hot path, and compiled into a table of
// 65,536 slot owners, 128 KB that stay inside a core's L2. A lookup is the
// hash of the key and one load. From a slot the walk goes on along the points
// to the next members; even slots walk upwards and odd ones downwards, which
// halves the variance of the shares (see compile).
//
// Promises, each with the test that holds it:
//
//   - every process builds the same ring, whatever the order of members: TestRingIgnoresMemberOrder, TestR05RingDoesNotDependOnOrder
//   - adding moves keys to the newcomer only, removing moves the leaver's only, to the next of their walk: TestAddMovesOnlyToTheNewcomer, TestRemoveMovesOnlyTheLeaversKeys
//   - raising a weight only adds points and moves keys only to the raised: TestRaisingAWeightOnlyAdds
//   - the walk yields every member with points exactly once, and nobody else: TestWalkYieldsEachMemberOnce
//   - a ring changed step by step equals one built at once: TestWithEqualsNewRing
//   - placements never change by accident: TestGoldenPlacement
//   - shares are even and movement is the least possible: TestBalanceTargets, TestMovementTargets
//   - one rule fits every combination of record, owner and fleet: TestEveryCombinationHasOneRule
//   - replicas agree, restrictions hold: TestDecideProperties
//   - loads alone move no live binding: TestOtherLoadsMoveNoLiveBinding
//   - a key that many sessions share fills nobody past the bound between two load tables: TestHotKeyStaysUnderTheBound
//   - a session jumps no more often than its owner failed, drained or tripped: TestSessionsJumpForCauseOnly
//   - hot instances shed their oldest bindings little by little, and nobody comes back: TestHotInstancesShedWithoutPingPong
//   - a breaker opens for cause, has one trial out at a time, and locks nobody out: TestBreakerProperties
//   - nobody is down without cause, and time that the watch missed changes nothing: TestHealthProperties, TestGapsChangeNoVerdict
//   - what joins move within a minute stays below the limit, and all are whole in the end: TestRampProperties
//   - rebuilds come at most once in a window, and lay the points out once:
//     TestR08RebuildsAtMostOnceInAWindow, TestR08OneLayoutPerRebuild
//   - lookups and decisions allocate nothing: TestNoAllocations
//   - a change of loads or states alone reuses the ring: TestOnlyMembersRebuildTheRing
//
// # Theory
//
// Consistent hashing with bounded loads is due to Mirrokni, Thorup and
// Zadimoghaddam (arXiv 1608.01350); Aamand, Knudsen and Thorup give the best
// known bounds on movement (arXiv 2104.05093). Passing an overloaded instance
// by for the next on the ring can cascade when neighbours are few: Chen,
// Coleman and Shrivastava jump at random instead (arXiv 1908.08762). With 512
// points an instance has hundreds of neighbours, and the bound is judged on a
// published load table, so the walk is random enough here. Maglev (NSDI 2016)
// compiles a table too but moves more than it must; AnchorHash (arXiv
// 1812.09674), DxHash (arXiv 2107.07930), MementoHash (arXiv 2306.09783) and
// JumpBackHash (arXiv 2403.18682) need less memory and offer neither weights
// nor a walk. Two choices for requests without a session follow Mitzenmacher's
// power of two choices.
package routing
