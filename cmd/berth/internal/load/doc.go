// Package load drives HTTP servers on loopback as cheaply as it can, so that what
// is measured is the server and not the client that shares its cores.
//
// A [Conn] is one keep-alive connection that writes requests as prepared bytes
// and reads answers without a header map. [Compare] alternates two targets in
// short rounds and reports the median of the pairwise ratios, because on shared
// machines only figures of the same moment can be compared.
package load
