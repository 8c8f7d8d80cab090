// Package services is Berth's HTTP API: for gateways, workers and operators.
//
// Handlers decode, call once, and answer or return an error; problem.go alone
// knows status codes, routes.go shows the whole API on one screen. What is
// decided is decided elsewhere: placements by package routing, writes by the
// store. What this package owns is the join of the two: a [Server] keeps an
// immutable image of the fleet (fleet.go) and a bounded cache of bindings
// (bindings.go), so that a route on the warm path touches memory only.
//
// What it promises:
//
//   - What cannot be right is refused with a stable code, before anything is
//     stored (TestBadBodiesAreRefusedAndNothingIsStored, TestBadHandlesAreRefusedEverywhere,
//     TestEveryRefusalIsReachableAndExplained, TestWhatIsNoRequestIsAProblem, FuzzAPI).
//   - An id is the bytes that came and a turn comes back as the bytes that came
//     (TestIDsAreTakenWhole, TestTurnsComeBackAsTheBytesThatCame).
//   - A route answers without the store, in bounded time and alike on every process,
//     and never with less than the caller was promised (TestRoutesAnswerWithoutTheStore,
//     TestADegradedRouteForgetsNoFloor, TestTwoProcessesDecideAlike).
//   - A loss is seen, repaired or accepted, never passed over (TestALossIsSeenThroughTheRoute
//     and its neighbours).
//   - An owner is called gone only by a registry read after the question
//     (TestAnOwnerThatAnotherProcessRegisteredIsNotGone).
//   - No answer looks whole that is not (TestALoadThatFailsNeverLooksWhole).
//   - Metrics move when the thing happens, and the table of them is what there is
//     (TestMetricsOf…, TestTheTableOfMetricsIsWhatThereIs).
//   - The served document is the API (TestTheDocumentIsTheAPI, TestAnswersAreAsDescribed,
//     TestEveryHeaderThatIsReadIsDescribed, TestRefusalsAheadOfTheHandlerAreDescribed).
//
// Contents, handles, incarnations and tokens never reach a log line or a metric,
// session ids only as keyed hashes (TestLogsAndRefusalsTellNoSecret).
package services
