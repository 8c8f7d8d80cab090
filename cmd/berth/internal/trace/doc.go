// Package trace reads recorded chat traffic and turns it into conversations
// that can be played against a server.
//
// A trace is JSON lines, plain or gzipped, one request a line, in the order
// of arrival:
//
//	{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, …, 2354]}
//
// timestamp is in milliseconds, the lengths are in tokens, and every hash id
// stands for one block of 512 prompt tokens: equal ids are equal prefixes. The
// format, and the trace that is embedded here, come from the Mooncake project;
// NOTICE.md says from where and under which licence.
//
// A [Reader] streams requests and refuses a bad line by its number
// (reader_test.go, FuzzReader). [Load] groups the requests into sessions and
// notes for each how much of its prompt was seen before, which is what one
// unbounded cache shared by the whole fleet would reuse: the ideal every
// routing policy is measured against (TestConversationFigures pins both for
// the embedded trace). A [Player] hands the turns out in order and never two of
// one session at a time (TestPlayKeepsSessionsInOrder). [Text] makes up what
// they say, since the trace holds no words (TestTextKeepsItsSize).
//
// Nothing here knows of instances, caches or servers.
package trace
